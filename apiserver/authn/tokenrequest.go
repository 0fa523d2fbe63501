package authn

import (
	"context"
	"fmt"
	"math"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/apiserver/request"
	"proa/client"
)

// Posts are the creates that this package answers. tokens are asked in order by token reviews.
func Posts(c client.Interface, issuer *Issuer, tokens ...TokenAuthenticator) map[string]request.Poster {
	review := tokenReview{audiences: issuer.config.Audiences, tokens: tokens}
	return map[string]request.Poster{
		"serviceaccounts/token":                    tokenRequest{c, issuer}.post,
		"tokenreviews.authentication.k8s.io":       review.post,
		"selfsubjectreviews.authentication.k8s.io": selfSubjectReview,
	}
}

// tokenRequest issues tokens: POST serviceaccounts/NAME/token.
type tokenRequest struct {
	client client.Interface
	issuer *Issuer
}

func (t tokenRequest) post(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a TokenRequest, got %T", p.Body))
	}
	out := body.DeepCopy()
	kind := schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}
	if (out.Name != "" && out.Name != p.Name) || (out.Namespace != "" && out.Namespace != p.Namespace) {
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), out.Name, "must match the service account name if specified")}
		return nil, apierrors.NewInvalid(kind, out.Name, errs)
	}
	account, err := client.For[*corev1.ServiceAccount](t.client).Get(ctx, p.Namespace, p.Name)
	if err != nil {
		return nil, err
	}
	if out.Spec.ExpirationSeconds == nil || *out.Spec.ExpirationSeconds == 0 {
		seconds := int64(DefaultLifetime / time.Second)
		out.Spec.ExpirationSeconds = &seconds
	}
	if len(out.Spec.Audiences) == 0 {
		out.Spec.Audiences = t.issuer.config.Audiences
	}
	if errs := validateTokenRequest(out); len(errs) > 0 {
		return nil, apierrors.NewInvalid(kind, "", errs)
	}
	bound, err := t.bind(ctx, account, out.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	seconds := *out.Spec.ExpirationSeconds
	if limit := int64(t.issuer.config.MaxLifetime / time.Second); limit > 0 && seconds > limit {
		request.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, limit))
		seconds = limit
		out.Spec.ExpirationSeconds = &seconds
	}
	issued, err := t.issuer.Issue(account, out.Spec.Audiences, time.Duration(seconds)*time.Second, bound)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out.Name, out.Namespace = account.Name, account.Namespace
	if out.CreationTimestamp.IsZero() {
		out.CreationTimestamp = metav1.Now()
	}
	out.Status = authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.Expires)}
	return out, nil
}

func validateTokenRequest(r *authenticationv1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	seconds := *r.Spec.ExpirationSeconds
	if seconds < int64(minLifetime/time.Second) {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > math.MaxUint32+1 {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind looks up what the token is to be bound to.
func (t tokenRequest) bind(ctx context.Context, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (Bound, error) {
	if ref == nil {
		return Bound{}, nil
	}
	var bound Bound
	var obj api.Object
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var plural string
	switch gvk {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		pod, err := client.For[*corev1.Pod](t.client).Get(ctx, account.Namespace, ref.Name)
		if err != nil {
			return Bound{}, err
		}
		if name := pod.Spec.ServiceAccountName; name != account.Name {
			return Bound{}, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		bound.Pod, obj, plural = pod, pod, "pods"
		if bound.NodeName = pod.Spec.NodeName; bound.NodeName != "" {
			node, err := client.For[*corev1.Node](t.client).Get(ctx, "", bound.NodeName)
			if err != nil && !apierrors.IsNotFound(err) {
				return Bound{}, err
			}
			if err == nil {
				bound.NodeUID = string(node.UID)
			}
		}
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		secret, err := client.For[*corev1.Secret](t.client).Get(ctx, account.Namespace, ref.Name)
		if err != nil {
			return Bound{}, err
		}
		bound.Secret, obj, plural = secret, secret, "secrets"
	case corev1.SchemeGroupVersion.WithKind("Node"):
		node, err := client.For[*corev1.Node](t.client).Get(ctx, "", ref.Name)
		if err != nil {
			return Bound{}, err
		}
		bound.NodeName, bound.NodeUID, obj, plural = node.Name, string(node.UID), node, "nodes"
	default:
		return Bound{}, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for object of type %s", gvk))
	}
	if ref.UID != "" && ref.UID != types.UID(obj.GetUID()) {
		return Bound{}, apierrors.NewConflict(schema.GroupResource{Resource: plural}, ref.Name, fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return bound, nil
}
