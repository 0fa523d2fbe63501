package apps

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func controllerRevisions() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		Plural:           "controllerrevisions",
		Singular:         "controllerrevision",
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.ControllerRevision) },
		NewList:          func() runtime.Object { return new(appsv1.ControllerRevisionList) },
		Validate: func(obj api.Object) field.ErrorList {
			return validateControllerRevision(obj.(*appsv1.ControllerRevision))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			revision := obj.(*appsv1.ControllerRevision)
			errs := validateControllerRevision(revision)
			return append(errs, validation.ValidateImmutableField(revision.Data, old.(*appsv1.ControllerRevision).Data, field.NewPath("data"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Controller", "Controller of the object"),
			api.Text("Revision", rules.Doc(appsv1.ControllerRevision{}, "revision")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			revision := obj.(*appsv1.ControllerRevision)
			return []any{revision.Name, controllerName(metav1.GetControllerOf(revision)), revision.Revision, api.Age(revision.CreationTimestamp, now)}
		},
	}
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	var errs field.ErrorList
	if r.Data.Raw == nil && r.Data.Object == nil {
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	}
	return append(errs, validation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))...)
}

// controllerName is the owner as "daemonset.apps/name".
func controllerName(owner *metav1.OwnerReference) string {
	if owner == nil {
		return "<none>"
	}
	name := strings.ToLower(owner.Kind)
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group != "" {
		name += "." + gv.Group
	}
	return name + "/" + owner.Name
}
