package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func tokenReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		Plural:           "tokenreviews",
		Singular:         "tokenreview",
		New:              func() api.Object { return new(authenticationv1.TokenReview) },
		NewList:          func() runtime.Object { return new(authenticationv1.TokenReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
