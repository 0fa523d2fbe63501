package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func volumeAttachments() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		Plural:                      "volumeattachments",
		Singular:                    "volumeattachment",
		New:                         func() api.Object { return new(storagev1.VolumeAttachment) },
		NewList:                     func() runtime.Object { return new(storagev1.VolumeAttachmentList) },
		Subresources:                []api.Subresource{api.Status()},
		DisallowUnconditionalUpdate: true,
		Validate: func(obj api.Object) field.ErrorList {
			return validateVolumeAttachment(obj.(*storagev1.VolumeAttachment))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			va, o := obj.(*storagev1.VolumeAttachment), old.(*storagev1.VolumeAttachment)
			return append(validateVolumeAttachment(va), validation.ValidateImmutableField(va.Spec, o.Spec, field.NewPath("spec"))...)
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			return validateAttachmentStatus(&obj.(*storagev1.VolumeAttachment).Status, field.NewPath("status"))
		},
		Columns: []api.Column{
			api.NameColumn(),
			{Name: "Attacher", Type: "string", Format: "name", Description: rules.Doc(storagev1.VolumeAttachmentSpec{}, "attacher")},
			api.Text("PV", rules.Doc(storagev1.VolumeAttachmentSource{}, "persistentVolumeName")),
			api.Text("Node", rules.Doc(storagev1.VolumeAttachmentSpec{}, "nodeName")),
			{Name: "Attached", Type: "boolean", Description: rules.Doc(storagev1.VolumeAttachmentStatus{}, "attached")},
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			va := obj.(*storagev1.VolumeAttachment)
			return []any{va.Name, va.Spec.Attacher, rules.Value(va.Spec.Source.PersistentVolumeName), va.Spec.NodeName,
				va.Status.Attached, api.Age(va.CreationTimestamp, now)}
		},
	}
}

func validateVolumeAttachment(va *storagev1.VolumeAttachment) field.ErrorList {
	at, spec := field.NewPath("spec"), &va.Spec
	errs := validateDriverName(spec.Attacher, at.Child("attacher"))
	switch name, inline := spec.Source.PersistentVolumeName, spec.Source.InlineVolumeSpec; {
	case name == nil && inline == nil:
		errs = append(errs, field.Required(at.Child("source"), "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil && inline != nil:
		errs = append(errs, field.Forbidden(at.Child("source"), "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil && *name == "":
		errs = append(errs, field.Required(at.Child("source", "persistentVolumeName"), "must specify non empty persistentVolumeName"))
	case name != nil:
		for _, msg := range validation.NameIsDNSSubdomain(*name, false) {
			errs = append(errs, field.Invalid(at.Child("source", "persistentVolumeName"), *name, msg))
		}
	}
	for _, msg := range validation.NameIsDNSSubdomain(spec.NodeName, false) {
		errs = append(errs, field.Invalid(at.Child("nodeName"), spec.NodeName, msg))
	}
	return append(errs, validateAttachmentStatus(&va.Status, field.NewPath("status"))...)
}

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	total := 0
	for key, value := range s.AttachmentMetadata {
		total += len(key) + len(value)
	}
	if total > maxParametersLen {
		errs = append(errs, field.TooLong(at.Child("attachmentMetadata"), "", maxParametersLen))
	}
	for name, e := range map[string]*storagev1.VolumeError{"attachError": s.AttachError, "detachError": s.DetachError} {
		if e != nil && len(e.Message) > 1024 {
			errs = append(errs, field.TooLong(at.Child(name, "message"), e.Message, 1024))
		}
	}
	return errs
}
