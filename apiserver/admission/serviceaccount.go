package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"proa/client"
)

const (
	defaultAccount     = "default"
	tokenVolume        = "kube-api-access-"
	tokenPath          = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds       = 3607
	rootCA             = "kube-root-ca.crt"
	mountableSecrets   = "kubernetes.io/enforce-mountable-secrets"
	accountWaitStep    = 50 * time.Millisecond
	accountWaitRetries = 40
)

// ServiceAccount gives every pod a service account and mounts its token.
type ServiceAccount struct {
	accounts   client.TypedLister[*corev1.ServiceAccount]
	namespaces client.TypedLister[*corev1.Namespace]
}

// NewServiceAccount returns the plugin.
func NewServiceAccount(c client.Interface) *ServiceAccount {
	ctx := context.Background()
	return &ServiceAccount{client.For[*corev1.ServiceAccount](c).Lister(ctx), client.For[*corev1.Namespace](c).Lister(ctx)}
}

// Name of the plugin.
func (*ServiceAccount) Name() string { return "ServiceAccount" }

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// Admit sets the account, its token volume and its pull secrets.
func (p *ServiceAccount) Admit(ctx context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if isMirror(pod) {
		return nil
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		pod.Spec.DeprecatedServiceAccount = defaultAccount
	}
	account, err := p.account(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return forbid(a, fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err))
	}
	if automount(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return nil
}

// account waits a moment for the default account of a young namespace, which its controller is about to make.
func (p *ServiceAccount) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, ok := p.accounts.Get(namespace, name)
	if !ok && name == defaultAccount {
		if ns, exists := p.namespaces.Get("", namespace); exists && time.Since(ns.CreationTimestamp.Time) < time.Minute {
			tick := time.NewTicker(accountWaitStep)
			defer tick.Stop()
			for range accountWaitRetries {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-tick.C:
				}
				if account, ok = p.accounts.Get(namespace, name); ok {
					break
				}
			}
		}
	}
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
	}
	return account, nil
}

func automount(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

func mountToken(pod *corev1.Pod) {
	name := ""
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && strings.HasPrefix(v.Name, tokenVolume) {
			name = v.Name
			break
		}
	}
	exists := name != ""
	if !exists {
		name = tokenVolume + rand.String(5)
	}
	mounted := false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				continue
			}
			list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
			mounted = true
		}
	}
	if !mounted || exists {
		return
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenSeconds))}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: rootCA},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
					Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
				}}}},
			},
		},
	}})
}

// Validate keeps mirror pods from needing the API, and pods to the secrets of an account that insists on it.
func (p *ServiceAccount) Validate(_ context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if isMirror(pod) {
		if err := checkMirror(pod); err != nil {
			return forbid(a, err)
		}
		return nil
	}
	account, ok := p.accounts.Get(a.Namespace, pod.Spec.ServiceAccountName)
	if !ok {
		return forbid(a, fmt.Errorf("no service account %q found", pod.Spec.ServiceAccountName))
	}
	if account.Annotations[mountableSecrets] == "true" {
		if err := checkSecrets(account, pod); err != nil {
			return forbid(a, err)
		}
	}
	return nil
}

func checkMirror(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Secret != nil:
			return errors.New("a mirror pod may not reference secrets")
		case v.ConfigMap != nil:
			return errors.New("a mirror pod may not reference configmaps")
		case v.PersistentVolumeClaim != nil:
			return errors.New("a mirror pod may not reference persistentvolumeclaims")
		case v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }):
			return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

func checkSecrets(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	mountable := func(name string) bool {
		return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name })
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !mountable(v.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !mountable(e.ValueFrom.SecretKeyRef.Name) {
					return fmt.Errorf("container %s with envVar %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
						c.Name, e.Name, e.ValueFrom.SecretKeyRef.Name, account.Name)
				}
			}
			for _, e := range c.EnvFrom {
				if e.SecretRef != nil && !mountable(e.SecretRef.Name) {
					return fmt.Errorf("container %s with envFrom referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
						c.Name, e.SecretRef.Name, account.Name)
				}
			}
		}
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, account.Name)
		}
	}
	return nil
}
