package authn

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/apiserver/request"
)

// tokenReview tells other programs whose token they were shown.
type tokenReview struct {
	audiences []string
	tokens    []TokenAuthenticator
}

func (t tokenReview) post(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authenticationv1.TokenReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a TokenReview, got %T", p.Body))
	}
	out := body.DeepCopy()
	if out.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := out.Spec.Audiences
	if len(audiences) == 0 {
		audiences = t.audiences
	}
	out.Status = authenticationv1.TokenReviewStatus{}
	for _, authenticator := range t.tokens {
		user, good, err := authenticator.Token(ctx, out.Spec.Token, audiences)
		if err != nil {
			out.Status.Error = err.Error()
			break
		}
		if user == nil {
			continue
		}
		out.Status.Authenticated = true
		out.Status.User = UserInfo(user)
		// Clients that know nothing of audiences see none.
		if len(out.Spec.Audiences) > 0 {
			out.Status.Audiences = good
		}
		break
	}
	if !out.Status.Authenticated && out.Status.Error == "" {
		out.Status.Error = "[invalid bearer token]"
	}
	return out, nil
}

// selfSubjectReview tells a user who they are: kubectl auth whoami.
func selfSubjectReview(_ context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*authenticationv1.SelfSubjectReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a SelfSubjectReview, got %T", p.Body))
	}
	out := body.DeepCopy()
	if out.CreationTimestamp.IsZero() {
		out.CreationTimestamp = metav1.Now()
	}
	if p.User == nil {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	out.Status.UserInfo = UserInfo(p.User)
	return out, nil
}

// UserInfo is a user as the API shows it.
func UserInfo(u *request.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: slices.Clone(u.Groups)}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = slices.Clone(values)
	}
	return info
}
