package admissionregistration

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api/rules"
)

// webhook is what the two kinds of admission webhooks have in common.
type webhook struct {
	name                string
	client              admissionregistrationv1.WebhookClientConfig
	rules               []admissionregistrationv1.RuleWithOperations
	failurePolicy       *admissionregistrationv1.FailurePolicyType
	matchPolicy         *admissionregistrationv1.MatchPolicyType
	namespaces, objects *metav1.LabelSelector
	sideEffects         *admissionregistrationv1.SideEffectClass
	timeout             *int32
	reviewVersions      []string
	conditions          []admissionregistrationv1.MatchCondition
	reinvocationPolicy  *admissionregistrationv1.ReinvocationPolicyType
}

func defaultWebhookRules(list []admissionregistrationv1.RuleWithOperations, client *admissionregistrationv1.WebhookClientConfig) {
	for i := range list {
		rules.SetDefault(&list[i].Scope, admissionregistrationv1.AllScopes)
	}
	if client.Service != nil {
		rules.SetDefault(&client.Service.Port, 443)
	}
}

func validateWebhooks(hooks []webhook) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range hooks {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(&hooks[i], at)...)
		if hooks[i].name != "" && seen[hooks[i].name] {
			errs = append(errs, field.Duplicate(at.Child("name"), hooks[i].name))
		}
		seen[hooks[i].name] = true
	}
	return errs
}

func validateWebhook(w *webhook, at *field.Path) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(at.Child("name"), w.name)
	errs = append(errs, validateReviewVersions(w.reviewVersions, at.Child("admissionReviewVersions"))...)
	for i := range w.rules {
		errs = append(errs, validateRule(&w.rules[i], at.Child("rules").Index(i), true)...)
	}
	errs = append(errs, oneOf(at.Child("failurePolicy"), w.failurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	errs = append(errs, oneOf(at.Child("matchPolicy"), w.matchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	if w.sideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, oneOf(at.Child("sideEffects"), w.sideEffects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	if w.timeout != nil && (*w.timeout < 1 || *w.timeout > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *w.timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateSelector(w.namespaces, at.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(w.objects, at.Child("objectSelector"))...)
	errs = append(errs, validateClient(&w.client, at.Child("clientConfig"))...)
	errs = append(errs, oneOf(at.Child("reinvocationPolicy"), w.reinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	return append(errs, validateConditions(w.conditions, at.Child("matchConditions"))...)
}

// oneOf checks an optional value that must be one of a few.
func oneOf[T ~string](at *field.Path, value *T, values ...T) field.ErrorList {
	if value == nil || slices.Contains(values, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *value, values)}
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validateReviewVersions(versions []string, at *field.Path) field.ErrorList {
	accepted := []string{"v1", "v1beta1"}
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+strings.Join(accepted, ", "))}
	}
	var errs field.ErrorList
	known := false
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		for _, msg := range utilvalidation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, msg))
		}
		known = known || slices.Contains(accepted, v)
	}
	if !known {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+strings.Join(accepted, ", ")))
	}
	return errs
}

func validateClient(c *admissionregistrationv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return validateURL(*c.URL, at.Child("url"))
	}
	var errs field.ErrorList
	at = at.Child("service")
	if c.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "service name is required"))
	}
	if c.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), "service namespace is required"))
	}
	if port := rules.Value(c.Service.Port); c.Service.Port != nil && len(utilvalidation.IsValidPortNum(int(port))) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+utilvalidation.IsValidPortNum(int(port))[0]))
	}
	return append(errs, validateServicePath(rules.Value(c.Service.Path), at.Child("path"))...)
}

func validateServicePath(path string, at *field.Path) field.ErrorList {
	if path == "" || path == "/" {
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return field.ErrorList{field.Invalid(at, path, "must start with a '/'")}
	}
	var errs field.ErrorList
	steps := strings.Split(strings.TrimSuffix(path[1:], "/"), "/")
	for i, step := range steps {
		if step == "" {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, msg := range utilvalidation.IsDNS1123Subdomain(step) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d]: %v", i, msg)))
		}
	}
	return errs
}

func validateURL(text string, at *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

// validateConditions checks the match conditions as far as that goes without compiling their expressions.
func validateConditions(conditions []admissionregistrationv1.MatchCondition, at *field.Path) field.ErrorList {
	const limit = 64
	var errs field.ErrorList
	if n := len(conditions); n > limit {
		errs = append(errs, field.TooMany(at, n, limit))
	}
	seen := map[string]bool{}
	for i, c := range conditions {
		at := at.Index(i)
		if strings.TrimSpace(c.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
		if c.Name != "" {
			for _, msg := range utilvalidation.IsQualifiedName(c.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), c.Name, msg))
			}
		}
	}
	return errs
}
