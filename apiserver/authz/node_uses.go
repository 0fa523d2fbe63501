package authz

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func (n *Node) usesSecret(node, namespace, name string) bool {
	for pod := range n.podsOn(node) {
		if pod.Namespace == namespace && podUsesSecret(pod, name) {
			return true
		}
		if n.volumesUseSecret(pod, namespace, name) {
			return true
		}
	}
	return false
}

func podUsesSecret(pod *corev1.Pod, name string) bool {
	if slices.ContainsFunc(pod.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name == name }) {
		return true
	}
	for env := range containers(pod) {
		for _, from := range env.from {
			if from.SecretRef != nil && from.SecretRef.Name == name {
				return true
			}
		}
		for _, v := range env.vars {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil && v.ValueFrom.SecretKeyRef.Name == name {
				return true
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if slices.Contains(volumeSecrets(&pod.Spec.Volumes[i].VolumeSource), name) {
			return true
		}
	}
	return false
}

func volumeSecrets(v *corev1.VolumeSource) []string {
	local := func(r *corev1.LocalObjectReference) []string {
		if r == nil {
			return nil
		}
		return []string{r.Name}
	}
	switch {
	case v.Secret != nil:
		return []string{v.Secret.SecretName}
	case v.Projected != nil:
		var out []string
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				out = append(out, s.Secret.Name)
			}
		}
		return out
	case v.AzureFile != nil:
		return []string{v.AzureFile.SecretName}
	case v.CephFS != nil:
		return local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return local(v.StorageOS.SecretRef)
	case v.CSI != nil:
		return local(v.CSI.NodePublishSecretRef)
	}
	return nil
}

// volumesUseSecret looks at the secrets that the pod's persistent volumes need on the node.
func (n *Node) volumesUseSecret(pod *corev1.Pod, namespace, name string) bool {
	for _, claim := range claimNames(pod) {
		volume, ok := n.volumeOf(pod.Namespace, claim)
		if !ok {
			continue
		}
		for _, ref := range persistentSecrets(volume) {
			in := ref.Namespace
			if in == "" {
				in = pod.Namespace
			}
			if in == namespace && ref.Name == name {
				return true
			}
		}
	}
	return false
}

func persistentSecrets(pv *corev1.PersistentVolume) []corev1.SecretReference {
	var out []corev1.SecretReference
	add := func(refs ...*corev1.SecretReference) {
		for _, r := range refs {
			if r != nil {
				out = append(out, *r)
			}
		}
	}
	s := &pv.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		add(s.CSI.NodePublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodeExpandSecretRef)
	case s.ISCSI != nil:
		add(s.ISCSI.SecretRef)
	case s.CephFS != nil:
		add(s.CephFS.SecretRef)
	case s.Cinder != nil:
		add(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		add(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		add(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		add(s.ScaleIO.SecretRef)
	case s.AzureFile != nil:
		ref := corev1.SecretReference{Name: s.AzureFile.SecretName}
		if s.AzureFile.SecretNamespace != nil {
			ref.Namespace = *s.AzureFile.SecretNamespace
		}
		out = append(out, ref)
	}
	return out
}

func (n *Node) usesConfigMap(node, namespace, name string) bool {
	for pod := range n.podsOn(node) {
		if pod.Namespace == namespace && podUsesConfigMap(pod, name) {
			return true
		}
	}
	return false
}

func podUsesConfigMap(pod *corev1.Pod, name string) bool {
	for env := range containers(pod) {
		for _, from := range env.from {
			if from.ConfigMapRef != nil && from.ConfigMapRef.Name == name {
				return true
			}
		}
		for _, v := range env.vars {
			if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil && v.ValueFrom.ConfigMapKeyRef.Name == name {
				return true
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == name {
			return true
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil && s.ConfigMap.Name == name {
				return true
			}
		}
	}
	return false
}

func (n *Node) usesClaim(node, namespace, name string) bool {
	for pod := range n.podsOn(node) {
		if pod.Namespace == namespace && slices.Contains(claimNames(pod), name) {
			return true
		}
	}
	return false
}

// claimNames of a pod's volumes; that of a generic ephemeral volume is made of the pod's and the volume's name.
func claimNames(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, pod.Name+"-"+v.Name)
		}
	}
	return out
}

func (n *Node) volumeOf(namespace, claim string) (*corev1.PersistentVolume, bool) {
	pvc, ok := n.claims.Get(namespace, claim)
	if !ok || pvc.Spec.VolumeName == "" {
		return nil, false
	}
	pv, ok := n.volumes.Get("", pvc.Spec.VolumeName)
	if !ok || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Namespace != namespace || pv.Spec.ClaimRef.Name != claim {
		return nil, false
	}
	return pv, true
}

func (n *Node) usesVolume(node, _, name string) bool {
	pv, ok := n.volumes.Get("", name)
	return ok && pv.Spec.ClaimRef != nil && n.usesClaim(node, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

func (n *Node) isAttachment(node, _, name string) bool {
	a, ok := n.attachments.Get("", name)
	return ok && a.Spec.NodeName == node
}

func (n *Node) usesAccount(node, namespace, name string) bool {
	for pod := range n.podsOn(node) {
		if pod.Namespace == namespace && pod.Spec.ServiceAccountName == name {
			return true
		}
	}
	return false
}

func (n *Node) usesResourceClaim(node, namespace, name string) bool {
	for pod := range n.podsOn(node) {
		if pod.Namespace != namespace {
			continue
		}
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimName != nil && *c.ResourceClaimName == name {
				return true
			}
		}
		for _, s := range pod.Status.ResourceClaimStatuses {
			if s.ResourceClaimName != nil && *s.ResourceClaimName == name {
				return true
			}
		}
	}
	return false
}

type environment struct {
	vars []corev1.EnvVar
	from []corev1.EnvFromSource
}

// containers yields the environment of containers of every sort.
func containers(pod *corev1.Pod) func(yield func(environment) bool) {
	return func(yield func(environment) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(environment{list[i].Env, list[i].EnvFrom}) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if c := &pod.Spec.EphemeralContainers[i]; !yield(environment{c.Env, c.EnvFrom}) {
				return
			}
		}
	}
}
