package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func validatingWebhookConfigurations() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		Plural:                      "validatingwebhookconfigurations",
		Singular:                    "validatingwebhookconfiguration",
		Categories:                  []string{"api-extensions"},
		New:                         func() api.Object { return new(admissionregistrationv1.ValidatingWebhookConfiguration) },
		NewList:                     func() runtime.Object { return new(admissionregistrationv1.ValidatingWebhookConfigurationList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
