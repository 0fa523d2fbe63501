package apps

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func daemonSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		Plural:           "daemonsets",
		Singular:         "daemonset",
		ShortNames:       []string{"ds"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.DaemonSet) },
		NewList:          func() runtime.Object { return new(appsv1.DaemonSetList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
		Default:          defaultDaemonSet,
		PrepareCreate:    func(obj api.Object) { setTemplateGeneration(obj, 1) },
		PrepareUpdate: func(obj, old api.Object) {
			generation := templateGeneration(old)
			if !equality.Semantic.DeepEqual(obj.(*appsv1.DaemonSet).Spec.Template, old.(*appsv1.DaemonSet).Spec.Template) {
				generation++
			}
			setTemplateGeneration(obj, generation)
		},
		Validate: func(obj api.Object) field.ErrorList { return validateDaemonSet(obj.(*appsv1.DaemonSet)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			ds := obj.(*appsv1.DaemonSet)
			return append(validateDaemonSet(ds), selectorUnchanged(ds.Spec.Selector, old.(*appsv1.DaemonSet).Spec.Selector)...)
		},
		ValidateStatusUpdate: validateDaemonSetStatus,
		Warnings: func(obj, old api.Object) []string {
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*appsv1.DaemonSet).Spec.Template
			}
			return core.PodTemplateWarnings(field.NewPath("spec", "template"), &obj.(*appsv1.DaemonSet).Spec.Template, oldTemplate)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Desired", rules.Doc(appsv1.DaemonSetStatus{}, "desiredNumberScheduled")),
			api.Number("Current", rules.Doc(appsv1.DaemonSetStatus{}, "currentNumberScheduled")),
			api.Number("Ready", rules.Doc(appsv1.DaemonSetStatus{}, "numberReady")),
			api.Number("Up-to-date", rules.Doc(appsv1.DaemonSetStatus{}, "updatedNumberScheduled")),
			api.Number("Available", rules.Doc(appsv1.DaemonSetStatus{}, "numberAvailable")),
			api.Text("Node Selector", rules.Doc(corev1.PodSpec{}, "nodeSelector")),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(rules.Doc(appsv1.DaemonSetSpec{}, "selector")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			ds := obj.(*appsv1.DaemonSet)
			names, images := api.ContainersAndImages(ds.Spec.Template.Spec.Containers)
			s := &ds.Status
			return []any{ds.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
				int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable), api.LabelSet(ds.Spec.Template.Spec.NodeSelector),
				api.Age(ds.CreationTimestamp, now), names, images, api.Selector(ds.Spec.Selector)}
		},
	}
}

func defaultDaemonSet(obj api.Object) {
	spec := &obj.(*appsv1.DaemonSet).Spec
	core.DefaultPodTemplate(&spec.Template)
	rules.SetDefault(&spec.RevisionHistoryLimit, 10)
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if strategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return
	}
	if strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
	}
	rules.SetDefault(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	rules.SetDefault(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
}

// The template generation of a daemon set was a field before apps/v1, where it lives on as an annotation that the
// server keeps.
func templateGeneration(obj api.Object) int64 {
	n, _ := strconv.ParseInt(obj.GetAnnotations()[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return n
}

func setTemplateGeneration(obj api.Object, n int64) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
	obj.SetAnnotations(annotations)
}

func validateDaemonSet(ds *appsv1.DaemonSet) field.ErrorList {
	path := field.NewPath("spec")
	spec := &ds.Spec
	errs := validateSelector(spec.Selector, path, "daemonset")
	errs = append(errs, validateTemplate(&spec.Template, spec.Selector, path, "DaemonSet")...)
	errs = append(errs, rules.NonNegative(path.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, validateDaemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	return append(errs, rules.NonNegative(path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), s.Type,
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	path = path.Child("rollingUpdate")
	r := s.RollingUpdate
	if r == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := rules.IntOrPercent(path.Child("maxUnavailable"), r.MaxUnavailable)
	errs = append(errs, rules.AtMost100Percent(path.Child("maxUnavailable"), r.MaxUnavailable)...)
	errs = append(errs, rules.IntOrPercent(path.Child("maxSurge"), r.MaxSurge)...)
	errs = append(errs, rules.AtMost100Percent(path.Child("maxSurge"), r.MaxSurge)...)
	switch noUnavailable, noSurge := rules.IsZero(r.MaxUnavailable), rules.IsZero(r.MaxSurge); {
	case !noUnavailable && !noSurge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case noUnavailable && noSurge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(obj, old api.Object) field.ErrorList {
	s, o, path := &obj.(*appsv1.DaemonSet).Status, &old.(*appsv1.DaemonSet).Status, field.NewPath("status")
	errs := validation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"currentNumberScheduled", s.CurrentNumberScheduled}, {"numberMisscheduled", s.NumberMisscheduled},
		{"desiredNumberScheduled", s.DesiredNumberScheduled}, {"numberReady", s.NumberReady},
		{"updatedNumberScheduled", s.UpdatedNumberScheduled}, {"numberAvailable", s.NumberAvailable},
		{"numberUnavailable", s.NumberUnavailable},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), &f.value)...)
	}
	if s.CollisionCount != nil {
		errs = append(errs, rules.NonNegative(path.Child("collisionCount"), s.CollisionCount)...)
	}
	return append(errs, rules.CountNotLowered(path.Child("collisionCount"), s.CollisionCount, o.CollisionCount)...)
}
