package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func mutatingWebhookConfigurations() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		Plural:                      "mutatingwebhookconfigurations",
		Singular:                    "mutatingwebhookconfiguration",
		Categories:                  []string{"api-extensions"},
		New:                         func() api.Object { return new(admissionregistrationv1.MutatingWebhookConfiguration) },
		NewList:                     func() runtime.Object { return new(admissionregistrationv1.MutatingWebhookConfigurationList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
