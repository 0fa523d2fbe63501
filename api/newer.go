package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// newerFields are the fields that the API types in use have and Kubernetes 1.31 has not, and that belong to no feature
// this server offers: per type, as Go field names. Served all the same, of later releases, are: PodSpec.Resources and
// PodStatus.{Resources,AllocatedResources} (pod-level resources), EndpointHints.ForNodes (traffic distribution) and
// NodeSystemInfo.Swap (node swap).
func newerFields() map[reflect.Type]string {
	return map[reflect.Type]string{
		reflect.TypeFor[appsv1.DeploymentStatus]():                        "TerminatingReplicas",
		reflect.TypeFor[appsv1.ReplicaSetStatus]():                        "TerminatingReplicas",
		reflect.TypeFor[authenticationv1.TokenRequestSpec]():              "Attestations",
		reflect.TypeFor[autoscalingv1.HorizontalPodAutoscalerCondition](): "ObservedGeneration",
		reflect.TypeFor[autoscalingv2.HPAScalingRules]():                  "Tolerance",
		reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerCondition](): "ObservedGeneration",
		reflect.TypeFor[batchv1.JobSpec]():                                "Scheduling",
		reflect.TypeFor[corev1.ClusterTrustBundleProjection]():            "User",
		reflect.TypeFor[corev1.ConfigMapVolumeSource]():                   "DefaultUser",
		reflect.TypeFor[corev1.Container]():                               "RestartPolicyRules",
		reflect.TypeFor[corev1.ContainerStatus]():                         "StopSignal",
		reflect.TypeFor[corev1.DownwardAPIVolumeFile]():                   "User",
		reflect.TypeFor[corev1.DownwardAPIVolumeSource]():                 "DefaultUser",
		reflect.TypeFor[corev1.EmptyDirVolumeSource]():                    "Mode",
		reflect.TypeFor[corev1.EnvVarSource]():                            "FileKeyRef",
		reflect.TypeFor[corev1.EphemeralContainerCommon]():                "RestartPolicyRules",
		reflect.TypeFor[corev1.GRPCAction]():                              "Mode",
		reflect.TypeFor[corev1.HTTPGetAction]():                           "Protocol",
		reflect.TypeFor[corev1.KeyToPath]():                               "User",
		reflect.TypeFor[corev1.Lifecycle]():                               "StopSignal",
		reflect.TypeFor[corev1.NodeSpec]():                                "PodPreemptionPolicy",
		reflect.TypeFor[corev1.NodeStatus]():                              "DeclaredFeatures",
		reflect.TypeFor[corev1.NodeSystemInfo]():                          "RunningInUserNamespace",
		reflect.TypeFor[corev1.PersistentVolumeClaimStatus]():             "HealthStatus",
		reflect.TypeFor[corev1.PodCondition]():                            "ObservedGeneration",
		reflect.TypeFor[corev1.PodLogOptions]():                           "Stream",
		reflect.TypeFor[corev1.PodSecurityContext]():                      "SELinuxChangePolicy",
		reflect.TypeFor[corev1.PodSpec]():                                 "EvictionResponders HostnameOverride SchedulingGroup",
		reflect.TypeFor[corev1.PodStatus]():                               "ExtendedResourceClaimStatus NodeAllocatableResourceClaimStatuses ObservedGeneration VolumeHealth",
		reflect.TypeFor[corev1.ProjectedVolumeSource]():                   "DefaultUser",
		reflect.TypeFor[corev1.ResourceHealth]():                          "Message",
		reflect.TypeFor[corev1.SecretVolumeSource]():                      "DefaultUser",
		reflect.TypeFor[corev1.ServiceAccountTokenProjection]():           "User",
		reflect.TypeFor[corev1.VolumeMount]():                             "BindMountOptions",
		reflect.TypeFor[corev1.VolumeMountStatus]():                       "VolumeStatus",
		reflect.TypeFor[corev1.VolumeProjection]():                        "PodCertificate",
		reflect.TypeFor[storagev1.CSIDriverSpec]():                        "NodeAllocatableUpdatePeriodSeconds PreventPodSchedulingIfMissing ServiceAccountTokenInSecrets",
		reflect.TypeFor[storagev1.CSINode]():                              "Status",
		reflect.TypeFor[storagev1.VolumeError]():                          "ErrorCode",
	}
}

// PruneNewer clears the fields of obj that only releases after Kubernetes 1.31 have, and returns the JSON paths of those
// that were set ("spec.hostnameOverride"). To the server they are unknown fields. It costs next to nothing for objects of
// types that cannot hold such a field.
func PruneNewer(obj runtime.Object) []string {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	p := prunerOf(v.Type().Elem())
	if p == nil || !p.has(v.Elem()) {
		return nil
	}
	var found []string
	p.prune(v.Elem(), "", &found)
	return found
}

// pruner knows the way to the newer fields within a type.
type pruner struct {
	kind reflect.Kind
	// newer are to be cleared, inner may hold newer fields deeper down: both of a struct.
	newer, inner []prunedField
	// elem is of a pointer or a slice.
	elem *pruner
}

type prunedField struct {
	index int
	// name in JSON; empty for an embedded struct.
	name string
	*pruner
}

// has reports whether a newer field is set in v.
func (p *pruner) has(v reflect.Value) bool {
	switch p.kind {
	case reflect.Struct:
		for _, f := range p.newer {
			if !v.Field(f.index).IsZero() {
				return true
			}
		}
		for _, f := range p.inner {
			if f.has(v.Field(f.index)) {
				return true
			}
		}
	case reflect.Pointer:
		return !v.IsNil() && p.elem.has(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if p.elem.has(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

func (p *pruner) prune(v reflect.Value, path string, found *[]string) {
	switch p.kind {
	case reflect.Struct:
		for _, f := range p.newer {
			if field := v.Field(f.index); !field.IsZero() {
				field.SetZero()
				*found = append(*found, joinPath(path, f.name))
			}
		}
		for _, f := range p.inner {
			f.prune(v.Field(f.index), joinPath(path, f.name), found)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			p.elem.prune(v.Elem(), path, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			p.elem.prune(v.Index(i), fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
}

func joinPath(path, name string) string {
	switch {
	case name == "":
		return path
	case path == "":
		return name
	}
	return path + "." + name
}

// compiled remembers the pruner of every type asked for; a nil one for types without newer fields.
var compiled sync.Map

func prunerOf(t reflect.Type) *pruner {
	if p, ok := compiled.Load(t); ok {
		return p.(*pruner)
	}
	c := compiler{fields: newerFields(), known: map[reflect.Type]*pruner{}}
	p := c.compile(t)
	compiled.Store(t, p)
	return p
}

type compiler struct {
	fields map[reflect.Type]string
	known  map[reflect.Type]*pruner
}

// compile returns how to prune values of t, or nil when there is nothing to prune in them. A type that contains itself
// is pruned down to its second appearance only; no API type with newer fields does.
func (c *compiler) compile(t reflect.Type) *pruner {
	if p, ok := c.known[t]; ok {
		return p
	}
	c.known[t] = nil
	p := &pruner{kind: t.Kind()}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		p.elem = c.compile(t.Elem())
		if p.elem == nil {
			return nil
		}
	case reflect.Struct:
		newer := strings.Fields(c.fields[t])
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if slices.Contains(newer, f.Name) {
				p.newer = append(p.newer, prunedField{index: i, name: name})
			} else if inner := c.compile(f.Type); inner != nil {
				p.inner = append(p.inner, prunedField{index: i, name: name, pruner: inner})
			}
		}
		if len(p.newer)+len(p.inner) == 0 {
			return nil
		}
	default:
		return nil
	}
	c.known[t] = p
	return p
}

// IsNewer reports whether a struct field, by its Go name, is one that PruneNewer clears.
func IsNewer(t reflect.Type, field string) bool {
	return slices.Contains(strings.Fields(newerTable()[t]), field)
}

var newerTable = sync.OnceValue(newerFields)
