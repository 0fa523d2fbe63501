package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func selfSubjectAccessReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
		Plural:           "selfsubjectaccessreviews",
		Singular:         "selfsubjectaccessreview",
		New:              func() api.Object { return new(authorizationv1.SelfSubjectAccessReview) },
		NewList:          func() runtime.Object { return new(authorizationv1.SelfSubjectAccessReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
