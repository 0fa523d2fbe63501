package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func selfSubjectReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		Plural:           "selfsubjectreviews",
		Singular:         "selfsubjectreview",
		New:              func() api.Object { return new(authenticationv1.SelfSubjectReview) },
		NewList:          func() runtime.Object { return new(authenticationv1.SelfSubjectReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
