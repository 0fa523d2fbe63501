package authz

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/apiserver/request"
)

// Posts are the creates that this package answers. They ask the authorizers in order, as the server does; rules reviews
// list what the RBAC among them knows.
func Posts(authorizers []Authorizer) map[string]request.Poster {
	r := reviews{Union(authorizers)}
	return map[string]request.Poster{
		"subjectaccessreviews.authorization.k8s.io":      r.subject,
		"selfsubjectaccessreviews.authorization.k8s.io":  r.self,
		"localsubjectaccessreviews.authorization.k8s.io": r.local,
		"selfsubjectrulesreviews.authorization.k8s.io":   r.rules,
	}
}

type reviews struct{ authorizers Union }

func (r reviews) subject(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return nil, unexpected("SubjectAccessReview", p.Body)
	}
	out := body.DeepCopy()
	if errs := validateSpec(&out.Spec); len(errs) > 0 {
		return nil, invalid("SubjectAccessReview", errs)
	}
	out.Status = r.decide(ctx, subjectUser(&out.Spec), out.Spec.ResourceAttributes, out.Spec.NonResourceAttributes)
	return out, nil
}

func (r reviews) local(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authorizationv1.LocalSubjectAccessReview)
	if !ok {
		return nil, unexpected("LocalSubjectAccessReview", p.Body)
	}
	out := body.DeepCopy()
	if out.Spec.ResourceAttributes != nil && out.Spec.ResourceAttributes.Namespace == "" {
		out.Spec.ResourceAttributes.Namespace = p.Namespace
	}
	errs := validateSpec(&out.Spec)
	if out.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), out.Spec.NonResourceAttributes,
			"disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return nil, invalid("LocalSubjectAccessReview", errs)
	}
	if out.Spec.ResourceAttributes.Namespace != p.Namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", p.Namespace))
	}
	out.Status = r.decide(ctx, subjectUser(&out.Spec), out.Spec.ResourceAttributes, nil)
	return out, nil
}

func (r reviews) self(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return nil, unexpected("SelfSubjectAccessReview", p.Body)
	}
	out := body.DeepCopy()
	if errs := validateAttributes(out.Spec.ResourceAttributes, out.Spec.NonResourceAttributes); len(errs) > 0 {
		return nil, invalid("SelfSubjectAccessReview", errs)
	}
	if p.User == nil {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	out.Status = r.decide(ctx, p.User, out.Spec.ResourceAttributes, out.Spec.NonResourceAttributes)
	return out, nil
}

func (r reviews) rules(_ context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, unexpected("SelfSubjectRulesReview", p.Body)
	}
	out := body.DeepCopy()
	if p.User == nil {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if out.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	out.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	if p.User.In(request.Masters) {
		out.Status.ResourceRules = append(out.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
		out.Status.NonResourceRules = append(out.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	}
	for _, a := range r.authorizers {
		switch a := a.(type) {
		case *RBAC:
			for _, rule := range a.Rules(p.User, out.Spec.Namespace) {
				if len(rule.Resources) > 0 {
					out.Status.ResourceRules = append(out.Status.ResourceRules, authorizationv1.ResourceRule{
						Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
				}
				if len(rule.NonResourceURLs) > 0 {
					out.Status.NonResourceRules = append(out.Status.NonResourceRules, authorizationv1.NonResourceRule{
						Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
				}
			}
		case *Node:
			if _, ok := NodeName(p.User); ok {
				out.Status.Incomplete = true
				out.Status.EvaluationError = "node authorizer does not support user rule resolution"
			}
		}
	}
	return out, nil
}

func (r reviews) decide(ctx context.Context, user *request.User, res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	d, reason, err := r.authorizers.Authorize(ctx, user, infoOf(res, non))
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: d == Allow, Denied: d == Deny, Reason: reason}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func infoOf(res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes) *request.Info {
	if res == nil {
		return &request.Info{Verb: non.Verb, Path: non.Path}
	}
	info := &request.Info{
		IsResource: true, Verb: res.Verb, Group: res.Group, Version: res.Version, Resource: res.Resource,
		Subresource: res.Subresource, Namespace: res.Namespace, Name: res.Name,
	}
	if s := res.FieldSelector; s != nil {
		info.FieldSelector = s.RawSelector
		if len(s.Requirements) > 0 {
			info.FieldSelector = fieldRequirements(s.Requirements)
		}
	}
	if s := res.LabelSelector; s != nil {
		info.LabelSelector = s.RawSelector
		if len(s.Requirements) > 0 {
			info.LabelSelector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements})
		}
	}
	return info
}

// fieldRequirements writes requirements as a selector. What a field selector cannot say is left out: a selector only
// narrows what is asked for.
func fieldRequirements(requirements []metav1.FieldSelectorRequirement) string {
	var parts []string
	for _, q := range requirements {
		if len(q.Values) != 1 {
			continue
		}
		switch q.Operator {
		case metav1.FieldSelectorOpIn:
			parts = append(parts, q.Key+"="+q.Values[0])
		case metav1.FieldSelectorOpNotIn:
			parts = append(parts, q.Key+"!="+q.Values[0])
		}
	}
	return strings.Join(parts, ",")
}

func subjectUser(spec *authorizationv1.SubjectAccessReviewSpec) *request.User {
	u := &request.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	return u
}

func validateSpec(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec.user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateAttributes(res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	switch {
	case res != nil && non != nil:
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), non, "cannot be specified in combination with resourceAttributes"))
	case res == nil && non == nil:
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes"), res, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if res == nil {
		return errs
	}
	path := field.NewPath("spec.resourceAttributes")
	if s := res.FieldSelector; s != nil {
		errs = append(errs, validateSelector(path.Child("fieldSelector"), s.RawSelector, len(s.Requirements))...)
	}
	if s := res.LabelSelector; s != nil {
		errs = append(errs, validateSelector(path.Child("labelSelector"), s.RawSelector, len(s.Requirements))...)
	}
	return errs
}

func validateSelector(path *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), "when "+path.String()+" is specified, requirements or rawSelector is required")}
	}
	return nil
}

func unexpected(kind string, body runtime.Object) error {
	return apierrors.NewBadRequest(fmt.Sprintf("expected a %s, got %T", kind, body))
}

func invalid(kind string, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}
