package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		Default: func(obj api.Object) {
			hooks := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
			for i := range hooks {
				w := &hooks[i]
				rules.SetDefault(&w.FailurePolicy, admissionregistrationv1.Fail)
				rules.SetDefault(&w.MatchPolicy, admissionregistrationv1.Equivalent)
				rules.SetDefault(&w.NamespaceSelector, metav1.LabelSelector{})
				rules.SetDefault(&w.ObjectSelector, metav1.LabelSelector{})
				rules.SetDefault(&w.TimeoutSeconds, 10)
				defaultWebhookRules(w.Rules, &w.ClientConfig)
			}
		},
		Validate: func(obj api.Object) field.ErrorList { return validateWebhooks(validatingWebhooks(obj)) },
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			c := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration)
			return []any{c.Name, int64(len(c.Webhooks)), api.Age(c.CreationTimestamp, now)}
		},
	}
}

func validatingWebhooks(obj api.Object) []webhook {
	var out []webhook
	for _, w := range obj.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks {
		out = append(out, webhook{
			name: w.Name, client: w.ClientConfig, rules: w.Rules, failurePolicy: w.FailurePolicy, matchPolicy: w.MatchPolicy,
			namespaces: w.NamespaceSelector, objects: w.ObjectSelector, sideEffects: w.SideEffects, timeout: w.TimeoutSeconds,
			reviewVersions: w.AdmissionReviewVersions, conditions: w.MatchConditions,
		})
	}
	return out
}
