package controllers

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *setRun) claimName(template string, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template, s.Name, ordinal)
}

// ensureClaims makes the claims of an ordinal that are missing. A new pod waits for claims that are on their way out.
func (c *statefulSets) ensureClaims(ctx context.Context, s *setRun, ordinal int, fresh bool) error {
	for _, t := range s.Spec.VolumeClaimTemplates {
		name := s.claimName(t.Name, ordinal)
		if present, ok := c.claimed.Get(s.Namespace, name); ok {
			if fresh && present.DeletionTimestamp != nil {
				return fmt.Errorf("claim %s is being deleted", name)
			}
			continue
		}
		claim := t.DeepCopy()
		claim.Name, claim.Namespace = name, s.Namespace
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		for k, v := range s.Spec.Selector.MatchLabels {
			claim.Labels[k] = v
		}
		claim.OwnerReferences = s.claimOwners(claim, nil)
		_, err := c.claims.Create(ctx, claim)
		switch {
		case apierrors.IsAlreadyExists(err):
		case err != nil:
			c.Events.Eventf(s.StatefulSet, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s-%d in StatefulSet %s failed error: %v", name, s.Name, ordinal, s.Name, err)
			return err
		default:
			c.Events.Eventf(s.StatefulSet, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s-%d in StatefulSet %s success", name, s.Name, ordinal, s.Name)
		}
	}
	return nil
}

// claimOwners is what a claim's owner references should be, by the retention policy: the set when claims go with it, the pod
// when claims go with pods that are scaled away (condemned is such a pod, else nil), nobody else of the two.
func (s *setRun) claimOwners(claim *corev1.PersistentVolumeClaim, condemned *corev1.Pod) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.UID == s.UID || r.APIVersion == "v1" && r.Kind == "Pod"
	})
	p := s.Spec.PersistentVolumeClaimRetentionPolicy
	switch {
	case p == nil:
	case condemned != nil && p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: condemned.Name, UID: condemned.UID})
	case p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		refs = append(refs, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: s.Name, UID: s.UID})
	}
	return refs
}

// ownClaims brings the owners of the claims that exist in line with the retention policy.
func (c *statefulSets) ownClaims(ctx context.Context, s *setRun) error {
	if len(s.Spec.VolumeClaimTemplates) == 0 || s.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		return nil
	}
	for i := range s.replicas {
		if err := c.ownClaimsOf(ctx, s, s.first()+i, nil); err != nil {
			return err
		}
	}
	for _, p := range s.condemned {
		if err := c.ownClaimsOf(ctx, s, s.ordinal(p), p); err != nil {
			return err
		}
	}
	return nil
}

func (c *statefulSets) ownClaimsOf(ctx context.Context, s *setRun, ordinal int, condemned *corev1.Pod) error {
	for _, t := range s.Spec.VolumeClaimTemplates {
		claim, ok := c.claimed.Get(s.Namespace, s.claimName(t.Name, ordinal))
		if !ok || claim.DeletionTimestamp != nil {
			continue
		}
		refs := s.claimOwners(claim, condemned)
		if equality.Semantic.DeepEqual(refs, claim.OwnerReferences) {
			continue
		}
		next := claim.DeepCopy()
		next.OwnerReferences = refs
		if _, err := c.claims.Update(ctx, next); ignoreGone(err) != nil {
			return err
		}
	}
	return nil
}
