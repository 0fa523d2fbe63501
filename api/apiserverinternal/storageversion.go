package apiserverinternal

import (
	"fmt"
	"strings"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
	"proa/api/rules"
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
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("CommonEncodingVersion", rules.Doc(apiserverinternalv1alpha1.StorageVersionStatus{}, "commonEncodingVersion")),
			api.Text("StorageVersions", rules.Doc(apiserverinternalv1alpha1.StorageVersionStatus{}, "storageVersions")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			sv := obj.(*apiserverinternalv1alpha1.StorageVersion)
			common := "<unset>"
			if sv.Status.CommonEncodingVersion != nil {
				common = *sv.Status.CommonEncodingVersion
			}
			return []any{sv.Name, common, versionsCell(sv.Status.StorageVersions), api.Age(sv.CreationTimestamp, now)}
		},
	}
}

func versionsCell(versions []apiserverinternalv1alpha1.ServerStorageVersion) string {
	const limit = 3
	if len(versions) == 0 {
		return "<unset>"
	}
	var list []string
	for _, v := range versions[:min(limit, len(versions))] {
		list = append(list, v.APIServerID+"="+v.EncodingVersion)
	}
	text := strings.Join(list, ",")
	if n := len(versions) - limit; n > 0 {
		text += fmt.Sprintf(" + %d more...", n)
	}
	return text
}
