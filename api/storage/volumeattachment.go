package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
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
	}
}
