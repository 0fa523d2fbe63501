package volumes

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// token is a service account token with its times.
type token struct {
	text           string
	renew, expires time.Time
}

// token returns the pod's token, renewed once 80 % of its time, or a day, has passed.
func (m *Manager) token(ctx context.Context, pod *corev1.Pod, volume string, p *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod.UID, volume, p.Path}
	m.mu.Lock()
	have, ok := m.tokens[key]
	m.mu.Unlock()
	if !ok {
		// After a restart of the agent the file has it.
		if have, ok = readToken(filepath.Join(m.dir(pod, "projected", volume), p.Path), pod.UID, p.Audience); ok {
			m.mu.Lock()
			m.tokens[key] = have
			m.mu.Unlock()
		}
	}
	if ok && time.Now().Before(have.renew) {
		m.remind(key, have)
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
		if ok && time.Now().Before(have.expires) {
			// The next look tries again.
			m.config.Log.Warn("token not renewed", "pod", pod.Namespace+"/"+pod.Name, "volume", volume, "err", err)
			m.config.Changed(pod.UID, time.Minute)
			return have.text, nil
		}
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	issued, good := answer.(*authenticationv1.TokenRequest)
	if !good {
		return "", fmt.Errorf("failed to fetch token: the answer is a %T", answer)
	}
	have = token{issued.Status.Token, renewal(asked, issued.Status.ExpirationTimestamp.Time), issued.Status.ExpirationTimestamp.Time}
	m.mu.Lock()
	m.tokens[key] = have
	m.mu.Unlock()
	m.remind(key, have)
	return have.text, nil
}

// remind has Setup called again when a token is due.
func (m *Manager) remind(key tokenKey, t token) {
	m.config.Changed(key.pod, max(time.Until(t.renew), 0)+time.Second)
}

// renewal is when a token is to be replaced: once 80 % of its time, or a day, has passed.
func renewal(issued, expires time.Time) time.Time {
	wait := min(expires.Sub(issued)*8/10, 24*time.Hour)
	return issued.Add(wait - rand.N(max(wait/100, 1))) // nodes do not all renew at once
}

// readToken reads the token in a file, if it is one for this pod and audience ("" for the cluster's own). Its times are
// what it says: it comes from the API server, and is only given back to the pod that has it.
func readToken(path string, pod types.UID, audience string) (token, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return token{}, false
	}
	parts := strings.Split(string(data), ".")
	if len(parts) != 3 {
		return token{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return token{}, false
	}
	var claims struct {
		Audiences  []string `json:"aud"`
		Issued     int64    `json:"iat"`
		Expires    int64    `json:"exp"`
		Kubernetes struct {
			Pod struct {
				UID types.UID `json:"uid"`
			} `json:"pod"`
			// WarnAfter is when a token was meant to expire whose life the API server has prolonged.
			WarnAfter int64 `json:"warnafter"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Kubernetes.Pod.UID != pod || audience != "" && !slices.Contains(claims.Audiences, audience) {
		return token{}, false
	}
	issued, expires := time.Unix(claims.Issued, 0), time.Unix(claims.Expires, 0)
	return token{string(data), renewal(issued, time.Unix(cmp.Or(claims.Kubernetes.WarnAfter, claims.Expires), 0)), expires}, true
}
