package volumes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/client"
)

type tokenKey struct {
	pod          types.UID
	volume, path string
}

// token is a service account token with its renewal time.
type token struct {
	text  string
	renew time.Time
}

// token returns the pod's token, renewed once 80 % of its time, or a day, has passed.
func (m *Manager) token(ctx context.Context, pod *corev1.Pod, volume string, p *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod.UID, volume, p.Path}
	m.mu.Lock()
	have, ok := m.tokens[key]
	m.mu.Unlock()
	if ok && time.Now().Before(have.renew) {
		return have.text, nil
	}
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		req.Spec.Audiences = []string{p.Audience}
	}
	req.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
	asked := time.Now()
	answer, err := client.For[*corev1.ServiceAccount](m.config.Client).Post(ctx, pod.Namespace, pod.Spec.ServiceAccountName, "token", req)
	if err != nil {
		if ok {
			// The old one may still be good; the next look tries again.
			m.config.Changed(pod.UID, time.Minute)
			return have.text, nil
		}
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	issued, good := answer.(*authenticationv1.TokenRequest)
	if !good {
		return "", fmt.Errorf("failed to fetch token: the answer is a %T", answer)
	}
	life := issued.Status.ExpirationTimestamp.Sub(asked)
	wait := min(life*8/10, 24*time.Hour)
	wait -= rand.N(max(wait/100, 1)) // nodes do not all renew at once
	m.mu.Lock()
	m.tokens[key] = token{issued.Status.Token, asked.Add(wait)}
	m.mu.Unlock()
	m.config.Changed(pod.UID, wait+time.Second)
	return issued.Status.Token, nil
}
