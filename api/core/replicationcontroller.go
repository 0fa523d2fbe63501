package core

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func replicationControllers() *api.Resource {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind: kind("ReplicationController"),
		Plural:           "replicationcontrollers",
		Singular:         "replicationcontroller",
		ShortNames:       []string{"rc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ReplicationController) },
		NewList:          func() runtime.Object { return new(corev1.ReplicationControllerList) },
		HasGeneration:    true,
		DefaultOrphan:    true,
		Subresources:     []api.Subresource{api.ScaleOf(rcScale, setRCScale), api.Status()},
		Default:          defaultRC,
		Validate:         validateRC,
		ValidateStatusUpdate: func(obj, _ api.Object) field.ErrorList {
			return validateRCStatus(obj.(*corev1.ReplicationController))
		},
		Warnings:   rcWarnings,
		FieldNames: []string{"status.replicas"},
		FieldValue: func(obj api.Object, _ string) string {
			return fmt.Sprint(obj.(*corev1.ReplicationController).Status.Replicas)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Desired", spec["replicas"]),
			api.Number("Current", status["replicas"]),
			api.Number("Ready", status["readyReplicas"]),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(spec["selector"]),
		},
		Cells: rcCells,
	}
}

func rcScale(obj api.Object) (spec, status int32, selector string) {
	rc := obj.(*corev1.ReplicationController)
	if rc.Spec.Replicas != nil {
		spec = *rc.Spec.Replicas
	}
	return spec, rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector).String()
}

func setRCScale(obj api.Object, replicas int32) {
	obj.(*corev1.ReplicationController).Spec.Replicas = &replicas
}

// defaultRC takes the selector, and the labels of a controller without any, from the labels of its pods.
func defaultRC(obj api.Object) {
	rc := obj.(*corev1.ReplicationController)
	if t := rc.Spec.Template; t != nil {
		DefaultPodTemplate(t)
		if len(t.Labels) > 0 {
			if len(rc.Spec.Selector) == 0 {
				rc.Spec.Selector = maps.Clone(t.Labels)
			}
			if len(rc.Labels) == 0 {
				rc.Labels = maps.Clone(t.Labels)
			}
		}
	}
	setPointer(&rc.Spec.Replicas, 1)
}

func validateRC(obj api.Object) field.ErrorList {
	rc := obj.(*corev1.ReplicationController)
	var p problems
	spec := field.NewPath("spec")
	p.nonNegative(spec.Child("minReadySeconds"), int64(rc.Spec.MinReadySeconds))
	if len(rc.Spec.Selector) == 0 {
		p.required(spec.Child("selector"), "")
	}
	p.all(metavalidation.ValidateLabels(rc.Spec.Selector, spec.Child("selector")))
	if rc.Spec.Replicas == nil {
		p.required(spec.Child("replicas"), "")
	} else {
		p.nonNegative(spec.Child("replicas"), int64(*rc.Spec.Replicas))
	}
	template := spec.Child("template")
	t := rc.Spec.Template
	if t == nil {
		p.required(template, "")
		return p.list
	}
	if len(rc.Spec.Selector) > 0 && !labels.SelectorFromSet(rc.Spec.Selector).Matches(labels.Set(t.Labels)) {
		p.invalid(template.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
	}
	p.all(ValidatePodTemplate(t, template))
	if r := t.Spec.RestartPolicy; r != corev1.RestartPolicyAlways {
		p.list = append(p.list, field.NotSupported(template.Child("spec", "restartPolicy"), r, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		p.forbidden(template.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported")
	}
	return p.list
}

func validateRCStatus(rc *corev1.ReplicationController) field.ErrorList {
	var p problems
	s, path := rc.Status, field.NewPath("status")
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"replicas", int64(s.Replicas)}, {"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)},
		{"readyReplicas", int64(s.ReadyReplicas)}, {"availableReplicas", int64(s.AvailableReplicas)},
		{"observedGeneration", s.ObservedGeneration},
	} {
		p.nonNegative(path.Child(f.name), f.value)
	}
	for _, f := range []struct {
		name         string
		value, limit int32
		message      string
	}{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"readyReplicas", s.ReadyReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"availableReplicas", s.AvailableReplicas, s.Replicas, "cannot be greater than status.replicas"},
		{"availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas"},
	} {
		if f.value > f.limit {
			p.invalid(path.Child(f.name), f.value, f.message)
		}
	}
	return p.list
}

func rcWarnings(obj, old api.Object) []string {
	rc := obj.(*corev1.ReplicationController)
	var before *corev1.PodTemplateSpec
	if o, ok := old.(*corev1.ReplicationController); ok && o != nil {
		if o.Generation > 0 && o.Generation == rc.Generation {
			return nil
		}
		before = o.Spec.Template
	}
	if rc.Spec.Template == nil {
		return nil
	}
	return PodTemplateWarnings(field.NewPath("spec", "template"), rc.Spec.Template, before)
}

func rcCells(obj api.Object, now time.Time) []any {
	rc := obj.(*corev1.ReplicationController)
	desired := int64(0)
	if rc.Spec.Replicas != nil {
		desired = int64(*rc.Spec.Replicas)
	}
	names, images := "", ""
	if rc.Spec.Template != nil {
		names, images = api.ContainersAndImages(rc.Spec.Template.Spec.Containers)
	}
	return []any{rc.Name, desired, int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), api.Age(rc.CreationTimestamp, now),
		names, images, api.LabelSet(rc.Spec.Selector)}
}
