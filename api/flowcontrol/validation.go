package flowcontrol

import (
	"fmt"
	"math"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

const (
	maxQueues       = 10 * 1000 * 1000
	maxHandEntropy  = 60
	exemptName      = "exempt"
	precedenceLimit = flowcontrolv1.FlowSchemaMaxMatchingPrecedence
)

func validateFlowSchema(fs *flowcontrolv1.FlowSchema) field.ErrorList {
	at, spec := field.NewPath("spec"), &fs.Spec
	var errs field.ErrorList
	if spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), spec.MatchingPrecedence, "must be a positive value"))
	}
	if spec.MatchingPrecedence > precedenceLimit {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", precedenceLimit)))
	}
	if spec.MatchingPrecedence == 1 && fs.Name != exemptName {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if d := spec.DistinguisherMethod; d != nil {
		kinds := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
		if !slices.Contains(kinds, d.Type) {
			errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), d.Type, kinds))
		}
	}
	level := at.Child("priorityLevelConfiguration", "name")
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		for _, msg := range validation.NameIsDNSSubdomain(name, false) {
			errs = append(errs, field.Invalid(level, name, msg))
		}
	}
	for i := range spec.Rules {
		errs = append(errs, validateRules(&spec.Rules[i], at.Child("rules").Index(i))...)
	}
	return errs
}

func validateRules(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], at.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, rule := range r.ResourceRules {
		at := at.Child("resourceRules").Index(i)
		errs = append(errs, validateVerbs(rule.Verbs, at.Child("verbs"))...)
		errs = append(errs, validateList(rule.APIGroups, at.Child("apiGroups"), "api groups", "resource rules must supply at least one api group")...)
		errs = append(errs, validateList(rule.Resources, at.Child("resources"), "resources", "resource rules must supply at least one resource")...)
		namespaces := at.Child("namespaces")
		if len(rule.Namespaces) == 0 && !rule.ClusterScope {
			errs = append(errs, field.Required(namespaces, "resource rules that are not cluster scoped must supply at least one namespace"))
			continue
		}
		if len(rule.Namespaces) > 1 && slices.Contains(rule.Namespaces, flowcontrolv1.NamespaceEvery) {
			errs = append(errs, field.Invalid(namespaces, rule.Namespaces, "if '*' is present, must not specify other namespaces"))
			continue
		}
		for j, namespace := range rule.Namespaces {
			if namespace == flowcontrolv1.NamespaceEvery {
				continue
			}
			for _, msg := range validation.ValidateNamespaceName(namespace, false) {
				errs = append(errs, field.Invalid(namespaces.Index(j), namespace, "invalid namespace name: "+msg))
			}
		}
	}
	for i, rule := range r.NonResourceRules {
		at := at.Child("nonResourceRules").Index(i)
		errs = append(errs, validateVerbs(rule.Verbs, at.Child("verbs"))...)
		urls := at.Child("nonResourceURLs")
		errs = append(errs, validateList(rule.NonResourceURLs, urls, "non-resource URLs", "nonResourceURLs must contain at least one value")...)
		for j, url := range rule.NonResourceURLs {
			if url != flowcontrolv1.NonResourceAll && !strings.HasPrefix(url, "/") {
				errs = append(errs, field.Invalid(urls.Index(j), url, "must start with slash"))
			}
		}
	}
	return errs
}

func validateList(values []string, at *field.Path, what, missing string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(at, missing)}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(at, values, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

func validateVerbs(verbs []string, at *field.Path) field.ErrorList {
	errs := validateList(verbs, at, "verbs", "verbs must contain at least one value")
	known := append([]string{"*", "connect", "proxy"}, api.AllVerbs...)
	slices.Sort(known)
	if i := slices.IndexFunc(verbs, func(verb string) bool { return !slices.Contains(known, verb) }); i >= 0 {
		errs = append(errs, field.NotSupported(at, verbs, known))
	}
	return errs
}

func validateSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	kinds := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}
	if !slices.Contains(kinds, s.Kind) {
		return field.ErrorList{field.NotSupported(at.Child("kind"), s.Kind, kinds)}
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		kind flowcontrolv1.SubjectKind
		set  bool
	}{{"serviceAccount", flowcontrolv1.SubjectKindServiceAccount, s.ServiceAccount != nil},
		{"user", flowcontrolv1.SubjectKindUser, s.User != nil}, {"group", flowcontrolv1.SubjectKindGroup, s.Group != nil}} {
		switch {
		case f.set && f.kind != s.Kind:
			errs = append(errs, field.Forbidden(at.Child(f.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", f.name, f.kind)))
		case !f.set && f.kind == s.Kind:
			errs = append(errs, field.Required(at.Child(f.name), fmt.Sprintf("%s is required when subject kind is '%s'", f.name, f.kind)))
		}
	}
	if account := s.ServiceAccount; account != nil && s.Kind == flowcontrolv1.SubjectKindServiceAccount {
		at := at.Child("serviceAccount")
		if account.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
		}
		if account.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
	}
	if s.User != nil && s.Kind == flowcontrolv1.SubjectKindUser && s.User.Name == "" {
		errs = append(errs, field.Required(at.Child("user", "name"), ""))
	}
	if s.Group != nil && s.Kind == flowcontrolv1.SubjectKindGroup && s.Group.Name == "" {
		errs = append(errs, field.Required(at.Child("group", "name"), ""))
	}
	return errs
}

func validatePriorityLevel(pl *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at, spec := field.NewPath("spec"), &pl.Spec
	var errs field.ErrorList
	if (pl.Name == exemptName) != (spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at.Child("type"), spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := spec.Exempt; e != nil {
			if n := rules.Value(e.NominalConcurrencyShares); n < 0 {
				errs = append(errs, field.Invalid(at.Child("exempt", "nominalConcurrencyShares"), n, "must be a non-negative integer"))
			}
			errs = append(errs, validatePercent(at.Child("exempt", "lendablePercent"), rules.Value(e.LendablePercent))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(at.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			return append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, validateLimited(spec.Limited, at.Child("limited"))...)
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), spec.Type, []flowcontrolv1.PriorityLevelEnablement{
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return errs
}

func validatePercent(at *field.Path, n int32) field.ErrorList {
	if n < 0 || n > 100 {
		return field.ErrorList{field.Invalid(at, n, "must be between 0 and 100, inclusive")}
	}
	return nil
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := rules.Value(l.NominalConcurrencyShares); n < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), n, "must be a non-negative integer"))
	}
	errs = append(errs, validatePercent(at.Child("lendablePercent"), rules.Value(l.LendablePercent))...)
	if n := l.BorrowingLimitPercent; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at.Child("borrowingLimitPercent"), *n, "if specified, must be a non-negative integer"))
	}
	at = at.Child("limitResponse")
	queuing := at.Child("queuing")
	switch l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if l.LimitResponse.Queuing != nil {
			errs = append(errs, field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if l.LimitResponse.Queuing == nil {
			return append(errs, field.Required(queuing, "must not be empty if limited.limitResponse.type is Limited"))
		}
		errs = append(errs, validateQueuing(l.LimitResponse.Queuing, queuing)...)
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), l.LimitResponse.Type, []flowcontrolv1.LimitResponseType{
			flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	return errs
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value int32
	}{{"queueLengthLimit", q.QueueLengthLimit}, {"queues", q.Queues}, {"handSize", q.HandSize}} {
		if f.value <= 0 {
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, "must be positive"))
		}
	}
	if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	switch hand := at.Child("handSize"); {
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case entropy(q.Queues, q.HandSize) > maxHandEntropy:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, maxHandEntropy)))
	}
	return errs
}

// entropy is how many random bits dealing a hand from a deck takes.
func entropy(deck, hand int32) int {
	bits := 0.0
	for i := range hand {
		bits += math.Log2(float64(deck - i))
	}
	return int(math.Ceil(bits))
}
