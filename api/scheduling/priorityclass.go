package scheduling

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func priorityClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
		Plural:           "priorityclasses",
		Singular:         "priorityclass",
		ShortNames:       []string{"pc"},
		New:              func() api.Object { return new(schedulingv1.PriorityClass) },
		NewList:          func() runtime.Object { return new(schedulingv1.PriorityClassList) },
		HasGeneration:    true,
		Default: func(obj api.Object) {
			rules.SetDefault(&obj.(*schedulingv1.PriorityClass).PreemptionPolicy, corev1.PreemptLowerPriority)
		},
		Validate: func(obj api.Object) field.ErrorList { return validatePriorityClass(obj.(*schedulingv1.PriorityClass)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			pc, o := obj.(*schedulingv1.PriorityClass), old.(*schedulingv1.PriorityClass)
			var errs field.ErrorList
			if pc.Value != o.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return append(errs, validation.ValidateImmutableField(pc.PreemptionPolicy, o.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Value", rules.Doc(schedulingv1.PriorityClass{}, "value")),
			{Name: "Global-Default", Type: "boolean", Description: rules.Doc(schedulingv1.PriorityClass{}, "globalDefault")},
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			pc := obj.(*schedulingv1.PriorityClass)
			return []any{pc.Name, int64(pc.Value), pc.GlobalDefault, api.Age(pc.CreationTimestamp, now)}
		},
	}
}

// The classes that the cluster brings; nobody else may use their prefix or go above what users may ask for.
const (
	systemPrefix     = "system-"
	highestUserValue = 1000000000
)

func systemValue(name string) (int32, bool) {
	switch name {
	case "system-node-critical":
		return 2*highestUserValue + 1000, true
	case "system-cluster-critical":
		return 2 * highestUserValue, true
	}
	return 0, false
}

func validatePriorityClass(pc *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(pc.Name, systemPrefix) {
		reason := pc.Name + " is not a known system priority class"
		value, known := systemValue(pc.Name)
		if known && value != pc.Value {
			reason = fmt.Sprintf("value of %s PriorityClass must be %d", pc.Name, value)
		}
		if known && value == pc.Value && pc.GlobalDefault {
			reason = fmt.Sprintf("globalDefault of %s PriorityClass must be false", pc.Name)
		}
		if !known || value != pc.Value || pc.GlobalDefault {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+reason))
		}
	} else if pc.Value > highestUserValue {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserValue)))
	}
	if policy := pc.PreemptionPolicy; policy != nil && *policy != corev1.PreemptLowerPriority && *policy != corev1.PreemptNever {
		if *policy == "" {
			return append(errs, field.Required(field.NewPath("preemptionPolicy"), ""))
		}
		errs = append(errs, field.NotSupported(field.NewPath("preemptionPolicy"), *policy,
			[]corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}))
	}
	return errs
}
