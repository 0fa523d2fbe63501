package apiserverinternal

import (
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func storageVersions() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            apiserverinternalv1alpha1.SchemeGroupVersion.WithKind("StorageVersion"),
		Plural:                      "storageversions",
		Singular:                    "storageversion",
		New:                         func() api.Object { return new(apiserverinternalv1alpha1.StorageVersion) },
		NewList:                     func() runtime.Object { return new(apiserverinternalv1alpha1.StorageVersionList) },
		Subresources:                []api.Subresource{api.Status()},
		DisallowUnconditionalUpdate: true,
	}
}
