package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func localSubjectAccessReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview"),
		Plural:           "localsubjectaccessreviews",
		Singular:         "localsubjectaccessreview",
		Namespaced:       true,
		New:              func() api.Object { return new(authorizationv1.LocalSubjectAccessReview) },
		NewList:          func() runtime.Object { return new(authorizationv1.LocalSubjectAccessReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
