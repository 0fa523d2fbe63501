package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func runtimeClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Plural:                      "runtimeclasses",
		Singular:                    "runtimeclass",
		New:                         func() api.Object { return new(nodev1.RuntimeClass) },
		NewList:                     func() runtime.Object { return new(nodev1.RuntimeClassList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
		Validate:                    func(obj api.Object) field.ErrorList { return validateRuntimeClass(obj.(*nodev1.RuntimeClass)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			rc := obj.(*nodev1.RuntimeClass)
			errs := validateRuntimeClass(rc)
			return append(errs, validation.ValidateImmutableField(rc.Handler, old.(*nodev1.RuntimeClass).Handler, field.NewPath("handler"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Handler", rules.Doc(nodev1.RuntimeClass{}, "handler")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			rc := obj.(*nodev1.RuntimeClass)
			return []any{rc.Name, rc.Handler, api.Age(rc.CreationTimestamp, now)}
		},
	}
}

func validateRuntimeClass(rc *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsDNS1123Label(rc.Handler) {
		errs = append(errs, field.Invalid(field.NewPath("handler"), rc.Handler, msg))
	}
	if rc.Overhead != nil {
		for name, quantity := range rc.Overhead.PodFixed {
			at := field.NewPath("overhead", "podFixed").Key(string(name))
			for _, msg := range utilvalidation.IsQualifiedName(string(name)) {
				errs = append(errs, field.Invalid(at, name, msg))
			}
			if quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(at, quantity.String(), "must be greater than or equal to 0"))
			}
		}
	}
	if rc.Scheduling != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(rc.Scheduling.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(rc.Scheduling.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

func validateTolerations(list []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := at.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			for _, msg := range utilvalidation.IsValidLabelValue(t.Value) {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, msg))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
	}
	return errs
}
