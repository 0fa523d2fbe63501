package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func selfSubjectRulesReviews() *api.Resource {
	return &api.Resource{
		GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"),
		Plural:           "selfsubjectrulesreviews",
		Singular:         "selfsubjectrulesreview",
		New:              func() api.Object { return new(authorizationv1.SelfSubjectRulesReview) },
		NewList:          func() runtime.Object { return new(authorizationv1.SelfSubjectRulesReview) },
		Verbs:            []string{"create"},
		Virtual:          true,
	}
}
