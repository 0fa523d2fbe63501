package scheduler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa/client"
)

const (
	volumeZoneName         = "VolumeZone"
	volumeRestrictionsName = "VolumeRestrictions"
	nodeVolumeLimitsName   = "NodeVolumeLimits"
)

// volumeZone keeps pods in the zones and regions that their volumes' labels name.
type volumeZone struct{}

func (volumeZone) name() string { return volumeZoneName }

type zoneFilter struct {
	wanted   []zoneLabel
	rejected *status
}

type zoneLabel struct {
	key    string
	values []string
}

// zoneKeys, with the older name that nodes may use instead.
func zoneKeys() map[string]string {
	return map[string]string{
		corev1.LabelTopologyZone: corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyRegion: corev1.LabelFailureDomainBetaRegion,
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	}
}

func (volumeZone) preFilter(c *cycle) (filter, *status) {
	f := &zoneFilter{rejected: reject(volumeZoneName, unresolvable, "node(s) had no available volume zone")}
	for _, v := range c.boundVolumes(c.pod.pod) {
		for key := range zoneKeys() {
			if value, ok := v.Labels[key]; ok {
				f.wanted = append(f.wanted, zoneLabel{key, strings.Split(value, "__")})
			}
		}
	}
	if len(f.wanted) == 0 {
		return nil, nil
	}
	return f, nil
}

// boundVolumes are the volumes of a pod's claims that are bound.
func (s *state) boundVolumes(pod *corev1.Pod) (out []*corev1.PersistentVolume) {
	names, _ := claimNames(pod)
	for _, name := range names {
		if claim := s.claims[objectKey{pod.Namespace, name}]; claim != nil && claim.Spec.VolumeName != "" {
			if v := s.volumes[claim.Spec.VolumeName]; v != nil {
				out = append(out, v)
			}
		}
	}
	return out
}

func (f *zoneFilter) filter(n *nodeInfo) *status {
	names := zoneKeys()
	for _, w := range f.wanted {
		value, ok := n.node.Labels[w.key]
		if !ok {
			value, ok = n.node.Labels[names[w.key]]
		}
		if ok && !slices.Contains(w.values, value) {
			return f.rejected
		}
		if !ok && hasZone(n.node) {
			return f.rejected
		}
	}
	return nil
}

// hasZone reports whether a node has any zone or region: without, the cluster is taken to have a single one.
func hasZone(node *corev1.Node) bool {
	for key := range zoneKeys() {
		if _, ok := node.Labels[key]; ok {
			return true
		}
	}
	return false
}

func (volumeZone) hint(e client.Event, pod *corev1.Pod) bool { return volumeBinding{}.hint(e, pod) }

// volumeRestrictions keeps a claim of access mode ReadWriteOncePod to one pod.
type volumeRestrictions struct{}

func (volumeRestrictions) name() string { return volumeRestrictionsName }

type onePodFilter struct {
	namespace string
	claims    sets.Set[string]
	// users of the claims by node.
	users    map[string]int
	total    int
	rejected *status
}

func (volumeRestrictions) preFilter(c *cycle) (filter, *status) {
	pod := c.pod.pod
	f := &onePodFilter{
		namespace: pod.Namespace, claims: sets.Set[string]{}, users: map[string]int{},
		rejected: reject(volumeRestrictionsName, unschedulable, "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"),
	}
	names, _ := claimNames(pod)
	for _, name := range names {
		if claim := c.claims[objectKey{pod.Namespace, name}]; claim != nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			f.claims.Insert(name)
		}
	}
	if len(f.claims) == 0 {
		return nil, nil
	}
	for _, p := range c.inNamespace[pod.Namespace] {
		if n := c.nodes[p.node]; n != nil {
			f.changePod(n, p, 1)
		}
	}
	return f, nil
}

func (f *onePodFilter) changePod(n *nodeInfo, p *podInfo, by int) {
	if p.pod.Namespace != f.namespace {
		return
	}
	names, _ := claimNames(p.pod)
	if f.claims.HasAny(names...) {
		f.users[n.name] += by
		f.total += by
	}
}

func (f *onePodFilter) filter(n *nodeInfo) *status {
	if f.total > 0 {
		return f.rejected
	}
	return nil
}

func (volumeRestrictions) hint(e client.Event, pod *corev1.Pod) bool {
	return podLeft(e) || volumeBinding{}.hint(e, pod)
}

// nodeVolumeLimits keeps nodes from getting more volumes of a CSI driver than it can attach there.
type nodeVolumeLimits struct{}

func (nodeVolumeLimits) name() string { return nodeVolumeLimitsName }

type limitFilter struct {
	state    *state
	volumes  map[string]string // driver by handle, of the pod
	rejected *status
}

func (nodeVolumeLimits) preFilter(c *cycle) (filter, *status) {
	if len(c.csiNodes) == 0 {
		return nil, nil
	}
	volumes := c.csiVolumes(c.pod.pod)
	if len(volumes) == 0 {
		return nil, nil
	}
	return &limitFilter{c.state, volumes, reject(nodeVolumeLimitsName, unschedulable, "node(s) exceed max volume count")}, nil
}

// csiVolumes are the drivers of a pod's volumes by handle; volumes still to be provisioned go by their claim.
func (s *state) csiVolumes(pod *corev1.Pod) map[string]string {
	var out map[string]string
	names, _ := claimNames(pod)
	for _, name := range names {
		claim := s.claims[objectKey{pod.Namespace, name}]
		if claim == nil {
			continue
		}
		driver, handle := "", pod.Namespace+"/"+name
		if v := s.volumes[claim.Spec.VolumeName]; v != nil {
			if v.Spec.CSI == nil {
				continue
			}
			driver, handle = v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle
		} else if class := s.classOf(claim); class != nil {
			driver = class.Provisioner
		}
		if out == nil {
			out = map[string]string{}
		}
		out[handle] = driver
	}
	return out
}

func (f *limitFilter) filter(n *nodeInfo) *status {
	csi := f.state.csiNodes[n.name]
	if csi == nil {
		return nil
	}
	for i := range csi.Spec.Drivers {
		d := &csi.Spec.Drivers[i]
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		used := sets.Set[string]{}
		fresh := false
		for _, p := range n.pods {
			for handle, driver := range f.state.csiVolumes(p.pod) {
				if driver == d.Name {
					used.Insert(handle)
				}
			}
		}
		for handle, driver := range f.volumes {
			if driver == d.Name && !used.Has(handle) {
				used.Insert(handle)
				fresh = true
			}
		}
		if fresh && used.Len() > int(*d.Allocatable.Count) {
			return f.rejected
		}
	}
	return nil
}

func (nodeVolumeLimits) hint(e client.Event, pod *corev1.Pod) bool {
	_, csi := e.New.(*storagev1.CSINode)
	return csi || podLeft(e) || volumeBinding{}.hint(e, pod)
}
