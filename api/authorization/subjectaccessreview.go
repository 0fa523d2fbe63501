package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func subjectAccessReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		Plural:           "subjectaccessreviews",
		Singular:         "subjectaccessreview",
		New:              func() api.Object { return new(authorizationv1.SubjectAccessReview) },
		NewList:          func() runtime.Object { return new(authorizationv1.SubjectAccessReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
