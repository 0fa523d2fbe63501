package apps

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func replicaSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Plural:           "replicasets",
		Singular:         "replicaset",
		ShortNames:       []string{"rs"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.ReplicaSet) },
		NewList:          func() runtime.Object { return new(appsv1.ReplicaSetList) },
		Subresources:     []api.Subresource{api.ScaleOf(getReplicaSetScale, setReplicaSetScale), api.Status()},
		HasGeneration:    true,
		Default: func(obj api.Object) {
			spec := &obj.(*appsv1.ReplicaSet).Spec
			core.DefaultPodTemplate(&spec.Template)
			rules.SetDefault(&spec.Replicas, 1)
		},
		Validate: func(obj api.Object) field.ErrorList { return validateReplicaSet(obj.(*appsv1.ReplicaSet)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			rs := obj.(*appsv1.ReplicaSet)
			return append(validateReplicaSet(rs), selectorUnchanged(rs.Spec.Selector, old.(*appsv1.ReplicaSet).Spec.Selector)...)
		},
		ValidateStatusUpdate: validateReplicaSetStatus,
		Warnings: func(obj, old api.Object) []string {
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*appsv1.ReplicaSet).Spec.Template
			}
			return templateWarnings(obj, old, &obj.(*appsv1.ReplicaSet).Spec.Template, oldTemplate)
		},
		FieldNames: []string{"status.replicas"},
		FieldValue: func(obj api.Object, name string) string {
			return strconv.Itoa(int(obj.(*appsv1.ReplicaSet).Status.Replicas))
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Desired", rules.Doc(appsv1.ReplicaSetSpec{}, "replicas")),
			api.Number("Current", rules.Doc(appsv1.ReplicaSetStatus{}, "replicas")),
			api.Number("Ready", rules.Doc(appsv1.ReplicaSetStatus{}, "readyReplicas")),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(rules.Doc(appsv1.ReplicaSetSpec{}, "selector")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			rs := obj.(*appsv1.ReplicaSet)
			names, images := api.ContainersAndImages(rs.Spec.Template.Spec.Containers)
			return []any{rs.Name, int64(rules.Value(rs.Spec.Replicas)), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas),
				api.Age(rs.CreationTimestamp, now), names, images, api.Selector(rs.Spec.Selector)}
		},
	}
}

func validateReplicaSet(rs *appsv1.ReplicaSet) field.ErrorList {
	path := field.NewPath("spec")
	spec := &rs.Spec
	errs := rules.NonNegative(path.Child("replicas"), spec.Replicas)
	errs = append(errs, rules.NonNegative(path.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, validateSelector(spec.Selector, path, "deployment")...)
	return append(errs, validateTemplate(&spec.Template, spec.Selector, path, "ReplicaSet")...)
}

func validateReplicaSetStatus(obj, old api.Object) field.ErrorList {
	s, path := &obj.(*appsv1.ReplicaSet).Status, field.NewPath("status")
	errs := validation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"replicas", s.Replicas}, {"fullyLabeledReplicas", s.FullyLabeledReplicas},
		{"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), &f.value)...)
	}
	errs = append(errs, rules.AtMost(path.Child("fullyLabeledReplicas"), s.FullyLabeledReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("readyReplicas"), s.ReadyReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.Replicas, "status.replicas")...)
	return append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")...)
}
