package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

func serviceAccounts() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ServiceAccount"),
		Plural:           "serviceaccounts",
		Singular:         "serviceaccount",
		ShortNames:       []string{"sa"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ServiceAccount) },
		NewList:          func() runtime.Object { return new(corev1.ServiceAccountList) },
		Subresources: []api.Subresource{{
			Name:  "token",
			Kind:  schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
			Verbs: []string{"create"},
		}},
		Columns: []api.Column{
			api.NameColumn(), api.Text("Secrets", corev1.ServiceAccount{}.SwaggerDoc()["secrets"]), api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			sa := obj.(*corev1.ServiceAccount)
			return []any{sa.Name, int64(len(sa.Secrets)), api.Age(sa.CreationTimestamp, now)}
		},
	}
}
