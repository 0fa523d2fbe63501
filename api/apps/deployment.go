package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func deployments() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Plural:           "deployments",
		Singular:         "deployment",
		ShortNames:       []string{"deploy"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.Deployment) },
		NewList:          func() runtime.Object { return new(appsv1.DeploymentList) },
		Subresources:     []api.Subresource{api.ScaleOf(getDeploymentScale, setDeploymentScale), api.Status()},
		HasGeneration:    true,
		Default:          defaultDeployment,
		Validate:         func(obj api.Object) field.ErrorList { return validateDeployment(obj.(*appsv1.Deployment)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			d := obj.(*appsv1.Deployment)
			return append(validateDeployment(d), selectorUnchanged(d.Spec.Selector, old.(*appsv1.Deployment).Spec.Selector)...)
		},
		PrepareStatusUpdate:  func(obj, old api.Object) { obj.SetLabels(old.GetLabels()) },
		ValidateStatusUpdate: validateDeploymentStatus,
		Warnings: func(obj, old api.Object) []string {
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*appsv1.Deployment).Spec.Template
			}
			return templateWarnings(obj, old, &obj.(*appsv1.Deployment).Spec.Template, oldTemplate)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Ready", "Number of the pod with ready state"),
			api.Text("Up-to-date", rules.Doc(appsv1.DeploymentStatus{}, "updatedReplicas")),
			api.Text("Available", rules.Doc(appsv1.DeploymentStatus{}, "availableReplicas")),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(rules.Doc(appsv1.DeploymentSpec{}, "selector")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			d := obj.(*appsv1.Deployment)
			names, images := api.ContainersAndImages(d.Spec.Template.Spec.Containers)
			return []any{d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, rules.Value(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas),
				int64(d.Status.AvailableReplicas), api.Age(d.CreationTimestamp, now), names, images, api.Selector(d.Spec.Selector)}
		},
	}
}

func defaultDeployment(obj api.Object) {
	spec := &obj.(*appsv1.Deployment).Spec
	core.DefaultPodTemplate(&spec.Template)
	rules.SetDefault(&spec.Replicas, 1)
	rules.SetDefault(&spec.RevisionHistoryLimit, 10)
	rules.SetDefault(&spec.ProgressDeadlineSeconds, 600)
	strategy := &spec.Strategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	rules.SetDefault(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	rules.SetDefault(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("spec")
	spec := &d.Spec
	errs := rules.NonNegative(path.Child("replicas"), spec.Replicas)
	errs = append(errs, validateSelector(spec.Selector, path, "deployment")...)
	errs = append(errs, validateTemplate(&spec.Template, spec.Selector, path, "ReplicaSet")...)
	errs = append(errs, validateDeploymentStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, rules.NonNegative(path.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, rules.NonNegative(path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	if seconds := spec.ProgressDeadlineSeconds; seconds != nil {
		errs = append(errs, rules.NonNegative(path.Child("progressDeadlineSeconds"), seconds)...)
		if *seconds <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *seconds, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is '"+string(s.Type)+"'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
		}
		r := s.RollingUpdate
		errs := rules.IntOrPercent(rolling.Child("maxUnavailable"), r.MaxUnavailable)
		errs = append(errs, rules.IntOrPercent(rolling.Child("maxSurge"), r.MaxSurge)...)
		if rules.IsZero(r.MaxUnavailable) && rules.IsZero(r.MaxSurge) {
			errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), r.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
		}
		return append(errs, rules.AtMost100Percent(rolling.Child("maxUnavailable"), r.MaxUnavailable)...)
	}
	return field.ErrorList{field.NotSupported(path.Child("type"), s.Type,
		[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
}

func validateDeploymentStatus(obj, old api.Object) field.ErrorList {
	s, o, path := &obj.(*appsv1.Deployment).Status, &old.(*appsv1.Deployment).Status, field.NewPath("status")
	errs := validation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"replicas", s.Replicas}, {"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas},
		{"availableReplicas", s.AvailableReplicas}, {"unavailableReplicas", s.UnavailableReplicas},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), &f.value)...)
	}
	if s.CollisionCount != nil {
		errs = append(errs, rules.NonNegative(path.Child("collisionCount"), s.CollisionCount)...)
	}
	errs = append(errs, rules.AtMost(path.Child("updatedReplicas"), s.UpdatedReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("readyReplicas"), s.ReadyReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")...)
	return append(errs, rules.CountNotLowered(path.Child("collisionCount"), s.CollisionCount, o.CollisionCount)...)
}
