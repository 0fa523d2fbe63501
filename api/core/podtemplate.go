package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func podTemplates() *api.Resource {
	spec := corev1.PodTemplateSpec{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind: kind("PodTemplate"),
		Plural:           "podtemplates",
		Singular:         "podtemplate",
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.PodTemplate) },
		NewList:          func() runtime.Object { return new(corev1.PodTemplateList) },
		HasGeneration:    true,
		CreateOnUpdate:   true,
		Default:          func(obj api.Object) { DefaultPodTemplate(&obj.(*corev1.PodTemplate).Template) },
		Validate: func(obj api.Object) field.ErrorList {
			return ValidatePodTemplate(&obj.(*corev1.PodTemplate).Template, field.NewPath("template"))
		},
		Warnings: func(obj, old api.Object) []string {
			var before *corev1.PodTemplateSpec
			if o, ok := old.(*corev1.PodTemplate); ok && o != nil {
				before = &o.Template
			}
			return PodTemplateWarnings(field.NewPath("template"), &obj.(*corev1.PodTemplate).Template, before)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Containers", "Names of each container in the template."),
			api.Text("Images", "Images referenced by each container in the template."),
			api.Text("Pod Labels", spec["metadata"]),
		},
		Cells: func(obj api.Object, _ time.Time) []any {
			t := obj.(*corev1.PodTemplate)
			names, images := api.ContainersAndImages(t.Template.Spec.Containers)
			return []any{t.Name, names, images, api.LabelSet(t.Template.Labels)}
		},
	}
}
