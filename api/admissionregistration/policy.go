package admissionregistration

import (
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api/rules"
)

func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	rules.SetDefault(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	rules.SetDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	rules.SetDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for _, list := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range list {
			rules.SetDefault(&list[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func validateMatch(m *admissionregistrationv1.MatchResources, at *field.Path, deletions bool) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := oneOf(at.Child("matchPolicy"), m.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	errs = append(errs, validateSelector(m.NamespaceSelector, at.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(m.ObjectSelector, at.Child("objectSelector"))...)
	for _, list := range []struct {
		name  string
		rules []admissionregistrationv1.NamedRuleWithOperations
	}{{"resourceRules", m.ResourceRules}, {"excludeResourceRules", m.ExcludeResourceRules}} {
		for i := range list.rules {
			r, at := &list.rules[i], at.Child(list.name).Index(i)
			errs = append(errs, validateRule(&r.RuleWithOperations, at, deletions)...)
			for j, name := range r.ResourceNames {
				for _, msg := range path.ValidatePathSegmentName(name, false) {
					errs = append(errs, field.Invalid(at.Child("resourceNames").Index(j), name, msg))
				}
				if slices.Contains(r.ResourceNames[:j], name) {
					errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(j), name))
				}
			}
		}
	}
	return errs
}

// validateConstraints checks the match of a policy, which unlike a binding's must be there and name resources.
func validateConstraints(m *admissionregistrationv1.MatchResources, at *field.Path, deletions bool) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateMatch(m, at, deletions)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

func validateParamKind(kind *admissionregistrationv1.ParamKind, at *field.Path) field.ErrorList {
	if kind == nil {
		return nil
	}
	var errs field.ErrorList
	if kind.APIVersion == "" {
		errs = append(errs, field.Required(at.Child("apiVersion"), ""))
	} else if gv, err := schema.ParseGroupVersion(kind.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), kind.APIVersion, err.Error()))
	} else {
		if gv.Group != "" {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(gv.Group) {
				errs = append(errs, field.Invalid(at.Child("apiVersion"), kind.APIVersion, msg))
			}
		}
		for _, msg := range utilvalidation.IsDNS1035Label(gv.Version) {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), kind.APIVersion, msg))
		}
	}
	if kind.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	for _, msg := range utilvalidation.IsDNS1035Label(strings.ToLower(kind.Kind)) {
		errs = append(errs, field.Invalid(at.Child("kind"), kind.Kind, "may have mixed case, but should otherwise match: "+msg))
	}
	return errs
}

// celWord matches what CEL takes for an identifier, apart from its reserved words.
func celWord(name string) bool {
	reserved := []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}
	return regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`).MatchString(name) && !slices.Contains(reserved, name)
}

func validateVariables(variables []admissionregistrationv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, v := range variables {
		at := at.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !celWord(v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "name is not a valid CEL identifier"))
		case seen[v.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		seen[v.Name] = true
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		}
	}
	return errs
}

func validateValidatingPolicy(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, at *field.Path) field.ErrorList {
	errs := oneOf(at.Child("failurePolicy"), spec.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"), true)...)
	errs = append(errs, validateConditions(spec.MatchConditions, at.Child("matchConditions"))...)
	errs = append(errs, validateVariables(spec.Variables, at.Child("variables"))...)
	if len(spec.Validations)+len(spec.AuditAnnotations) == 0 {
		errs = append(errs, field.Required(at.Child("validations"), "validations or auditAnnotations must contain at least one item"))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(&spec.Validations[i], at.Child("validations").Index(i))...)
	}
	const maxAnnotations = 20
	annotations := at.Child("auditAnnotations")
	if n := len(spec.AuditAnnotations); n > maxAnnotations {
		errs = append(errs, field.TooMany(annotations, n, maxAnnotations))
	}
	seen := map[string]bool{}
	for i, a := range spec.AuditAnnotations {
		at := annotations.Index(i)
		switch {
		case a.Key == "":
			errs = append(errs, field.Required(at.Child("key"), ""))
		case seen[a.Key]:
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		seen[a.Key] = true
		for _, msg := range utilvalidation.IsQualifiedName(a.Key) {
			if a.Key != "" {
				errs = append(errs, field.Invalid(at.Child("key"), a.Key, msg))
			}
		}
		if strings.TrimSpace(a.ValueExpression) == "" {
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		} else if len(a.ValueExpression) > 5*1024 {
			errs = append(errs, field.TooLong(at.Child("valueExpression"), a.ValueExpression, 5*1024))
		}
	}
	return errs
}

func validateValidation(v *admissionregistrationv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	}
	if v.MessageExpression != "" && strings.TrimSpace(v.MessageExpression) == "" {
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	}
	message := strings.TrimSpace(v.Message)
	switch {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.ContainsAny(message, "\r\n"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	case strings.ContainsAny(v.Expression, "\r\n") && message == "":
		errs = append(errs, field.Required(at.Child("message"), "message must be specified if expression contains line breaks"))
	}
	return append(errs, oneOf(at.Child("reason"), v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized)...)
}

func validateMutatingPolicy(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, at *field.Path) field.ErrorList {
	errs := oneOf(at.Child("failurePolicy"), spec.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"), false)...)
	errs = append(errs, validateConditions(spec.MatchConditions, at.Child("matchConditions"))...)
	errs = append(errs, validateVariables(spec.Variables, at.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(&spec.Mutations[i], at.Child("mutations").Index(i))...)
	}
	switch policy := spec.ReinvocationPolicy; policy {
	case admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy:
	case "":
		errs = append(errs, field.Required(at.Child("reinvocationPolicy"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("reinvocationPolicy"), policy,
			[]admissionregistrationv1.ReinvocationPolicyType{admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy}))
	}
	return errs
}

func validateMutation(m *admissionregistrationv1.Mutation, at *field.Path) field.ErrorList {
	apply, patch := at.Child("applyConfiguration"), at.Child("jsonPatch")
	var errs field.ErrorList
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(patch, "{applyConfiguration}", "must be empty when patchType is ApplyConfiguration"))
		}
		switch {
		case m.ApplyConfiguration == nil:
			errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		case strings.TrimSpace(m.ApplyConfiguration.Expression) == "":
			errs = append(errs, field.Required(apply.Child("expression"), "expression is not specified"))
		}
	case admissionregistrationv1.PatchTypeJSONPatch:
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{jsonPatch}", "must be empty when patchType is JSONPatch"))
		}
		switch {
		case m.JSONPatch == nil:
			errs = append(errs, field.Required(patch, "must be specified when patchType is JSONPatch"))
		case strings.TrimSpace(m.JSONPatch.Expression) == "":
			errs = append(errs, field.Required(patch.Child("expression"), "expression is not specified"))
		}
	case "":
		errs = append(errs, field.Required(at.Child("patchType"), ""))
	default:
		errs = append(errs, field.NotSupported(at.Child("patchType"), m.PatchType,
			[]admissionregistrationv1.PatchType{admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch}))
	}
	return errs
}

func validateBindingParts(policy string, ref *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		for _, msg := range validation.NameIsDNSSubdomain(policy, false) {
			errs = append(errs, field.Invalid(at.Child("policyName"), policy, msg))
		}
	}
	if ref != nil {
		errs = append(errs, validateParamRef(ref, at.Child("paramRef"))...)
	}
	return append(errs, validateMatch(match, at.Child("matchResources"), true)...)
}

func validateParamRef(ref *admissionregistrationv1.ParamRef, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Name != "" {
		for _, msg := range path.ValidatePathSegmentName(ref.Name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), ref.Name, msg))
		}
	}
	switch {
	case ref.Name != "" && ref.Selector != nil:
		errs = append(errs, field.Forbidden(at.Child("name"), "name and selector are mutually exclusive"),
			field.Forbidden(at.Child("selector"), "name and selector are mutually exclusive"))
	case ref.Name == "" && ref.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	errs = append(errs, validateSelector(ref.Selector, at.Child("selector"))...)
	if ref.ParameterNotFoundAction == nil {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, oneOf(at.Child("parameterNotFoundAction"), ref.ParameterNotFoundAction,
		admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)...)
}

func validateActions(actions []admissionregistrationv1.ValidationAction, at *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(at, "at least one validation action is required")}
	}
	var errs field.ErrorList
	for i, action := range actions {
		errs = append(errs, oneOf(at.Index(i), &action, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)...)
		if slices.Contains(actions[:i], action) {
			errs = append(errs, field.Duplicate(at.Index(i), action))
		}
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
