package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func podWarnings(obj, old api.Object) []string {
	pod := obj.(*corev1.Pod)
	var before *corev1.PodTemplateSpec
	if o, ok := old.(*corev1.Pod); ok && o != nil {
		before = &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	}
	w := PodTemplateWarnings(nil, &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, before)
	if before == nil {
		if msgs := utilvalidation.IsDNS1123Label(pod.Name); len(msgs) > 0 && pod.Name != "" {
			w = append(w, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
		}
	}
	return w
}

// PodTemplateWarnings returns what clients should be warned about in a pod template at path, or in a pod at the nil
// path. With old, the template before an update, nothing is said about what has not changed.
func PodTemplateWarnings(path *field.Path, t, old *corev1.PodTemplateSpec) []string {
	if old != nil && old.Generation > 0 && old.Generation == t.Generation {
		return nil
	}
	at := func(name string) *field.Path {
		if path == nil {
			return field.NewPath(name)
		}
		return path.Child(name)
	}
	// Templates keep their annotations under template.metadata, and so do pods.
	w := warnings{}
	w.annotations(t, at("metadata").Child("annotations"))
	w.spec(&t.Spec, t.Annotations, at("spec"))
	return w.list
}

type warnings struct{ list []string }

func (w *warnings) add(path *field.Path, message string) {
	w.list = append(w.list, fmt.Sprintf("%s: %s", path, message))
}

// deprecatedLabel says what to use instead of a label of nodes; empty for those in use.
func deprecatedLabel(key string) string {
	switch key {
	case "beta.kubernetes.io/arch":
		return `deprecated since v1.14; use "kubernetes.io/arch" instead`
	case "beta.kubernetes.io/os":
		return `deprecated since v1.14; use "kubernetes.io/os" instead`
	case "failure-domain.beta.kubernetes.io/region":
		return `deprecated since v1.17; use "topology.kubernetes.io/region" instead`
	case "failure-domain.beta.kubernetes.io/zone":
		return `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`
	case "beta.kubernetes.io/instance-type":
		return `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`
	}
	return ""
}

func (w *warnings) annotations(t *corev1.PodTemplateSpec, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(t.Annotations)) {
		switch {
		case key == "seccomp.security.alpha.kubernetes.io/pod":
			if t.Spec.SecurityContext == nil || t.Spec.SecurityContext.SeccompProfile == nil {
				w.add(path.Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
			}
		case strings.HasPrefix(key, "container.seccomp.security.alpha.kubernetes.io/"):
			w.add(path.Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
		case key == "security.alpha.kubernetes.io/sysctls", key == "security.alpha.kubernetes.io/unsafe-sysctls":
			w.add(path.Key(key), `non-functional in v1.11+; use the "sysctls" field instead`)
		case key == "scheduler.alpha.kubernetes.io/critical-pod":
			w.add(path.Key(key), `non-functional in v1.16+; use the "priorityClassName" field instead`)
		}
	}
}

func (w *warnings) spec(spec *corev1.PodSpec, annotations map[string]string, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if m := deprecatedLabel(key); m != "" {
			w.add(path.Child("nodeSelector").Key(key), m)
		}
	}
	w.affinity(spec.Affinity, path.Child("affinity"))
	for i, c := range spec.TopologySpreadConstraints {
		at := path.Child("topologySpreadConstraints").Index(i)
		if m := deprecatedLabel(c.TopologyKey); m != "" {
			w.add(at.Child("topologyKey"), fmt.Sprintf("%s is %s", c.TopologyKey, m))
		}
		w.selector(c.LabelSelector, at)
	}
	for i := range spec.Volumes {
		w.volume(&spec.Volumes[i], path.Child("volumes").Index(i))
	}
	for i, s := range spec.ImagePullSecrets {
		if s.Name == "" {
			w.add(path.Child("imagePullSecrets").Index(i).Child("name"), fmt.Sprintf("invalid empty name %q", s.Name))
		}
	}
	w.hostAliases(spec.HostAliases, path.Child("hostAliases"))
	if g := spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		w.add(path.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.quantities(spec.Overhead, path.Child("overhead"))
	eachContainer(spec.DeepCopy(), path, func(c *corev1.Container, path *field.Path) { w.container(c, annotations, path) })
}

func (w *warnings) hostAliases(aliases []corev1.HostAlias, path *field.Path) {
	seen := map[string]bool{}
	for i, a := range aliases {
		if seen[a.IP] {
			w.add(path.Index(i).Child("ip"), fmt.Sprintf("duplicate ip %q", a.IP))
		}
		seen[a.IP] = true
	}
}

func (w *warnings) selector(s *metav1.LabelSelector, path *field.Path) {
	if s == nil {
		w.add(path.Child("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

func (w *warnings) affinity(a *corev1.Affinity, path *field.Path) {
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			for i, t := range r.NodeSelectorTerms {
				w.term(t, path.Child("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
			}
		}
		for i, t := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			w.term(t.Preference, path.Child("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	if pa := a.PodAffinity; pa != nil {
		w.podTerms(pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if pa := a.PodAntiAffinity; pa != nil {
		w.podTerms(pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func (w *warnings) podTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) {
	for i, t := range required {
		w.selector(t.LabelSelector, path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
	}
	for i, t := range preferred {
		w.selector(t.PodAffinityTerm.LabelSelector,
			path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
	}
}

func (w *warnings) term(t corev1.NodeSelectorTerm, path *field.Path) {
	for i, e := range t.MatchExpressions {
		if m := deprecatedLabel(e.Key); m != "" {
			w.add(path.Child("matchExpressions").Index(i).Child("key"), fmt.Sprintf("%s is %s", e.Key, m))
		}
	}
}

func (w *warnings) volume(v *corev1.Volume, path *field.Path) {
	for _, d := range []struct {
		name, since string
		set         bool
	}{
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+", v.PhotonPersistentDisk != nil},
		{"gitRepo", "deprecated in v1.11", v.GitRepo != nil},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+", v.ScaleIO != nil},
		{"flocker", "deprecated in v1.22, non-functional in v1.25+", v.Flocker != nil},
		{"storageOS", "deprecated in v1.22, non-functional in v1.25+", v.StorageOS != nil},
		{"quobyte", "deprecated in v1.22, non-functional in v1.25+", v.Quobyte != nil},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+", v.Glusterfs != nil},
		{"cephfs", "deprecated in v1.28, non-functional in v1.31+", v.CephFS != nil},
		{"rbd", "deprecated in v1.28, non-functional in v1.31+", v.RBD != nil},
	} {
		if d.set {
			w.add(path.Child(d.name), d.since)
		}
	}
	if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		w.list = append(w.list, claimWarnings(path.Child("ephemeral", "volumeClaimTemplate"), e.VolumeClaimTemplate.Annotations, &e.VolumeClaimTemplate.Spec)...)
	}
}

func (w *warnings) quantities(list corev1.ResourceList, path *field.Path) {
	for _, name := range sortedNames(list) {
		w.fractional(name, list[name], path)
	}
}

// fractional warns of parts of a byte.
func (w *warnings) fractional(name corev1.ResourceName, q resource.Quantity, path *field.Path) {
	if name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && name != corev1.ResourceStorage {
		return
	}
	if q.MilliValue()%1000 != 0 {
		w.add(path.Key(string(name)), fmt.Sprintf("fractional byte value %q is invalid, must be an integer", q.String()))
	}
}

func (w *warnings) container(c *corev1.Container, annotations map[string]string, path *field.Path) {
	if key := appArmorPrefix + c.Name; annotations[key] != "" {
		if c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil {
			w.list = append(w.list, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key))
		}
	}
	w.quantities(c.Resources.Limits, path.Child("resources", "limits"))
	w.quantities(c.Resources.Requests, path.Child("resources", "requests"))
	seen := map[string]bool{}
	for i, e := range c.Env {
		if seen[e.Name] && !strings.Contains(e.Value, "$("+e.Name+")") {
			w.add(path.Child("env").Index(i), fmt.Sprintf("hides previous definition of %q, which may be dropped when using apply", e.Name))
		}
		seen[e.Name] = true
	}
	w.ports(c.Ports, path.Child("ports"))
}

func (w *warnings) ports(ports []corev1.ContainerPort, path *field.Path) {
	for i, port := range ports {
		for j, other := range ports[:i] {
			if port.ContainerPort == other.ContainerPort && port.Protocol == other.Protocol &&
				port.HostPort == other.HostPort && (port.HostIP == other.HostIP || port.HostIP == "" || other.HostIP == "") {
				w.add(path.Index(i), fmt.Sprintf("duplicate port definition with %s", path.Index(j)))
				break
			}
		}
	}
}
