package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *problems) env(vars []corev1.EnvVar, path *field.Path) {
	for i, v := range vars {
		at := path.Index(i)
		if p.some(at.Child("name"), v.Name) {
			p.messages(at.Child("name"), v.Name, utilvalidation.IsEnvVarName(v.Name))
		}
		if v.ValueFrom != nil {
			p.envSource(v, at.Child("valueFrom"))
		}
	}
}

func (p *problems) envSource(v corev1.EnvVar, path *field.Path) {
	from, n := v.ValueFrom, 0
	if from.FieldRef != nil {
		n++
		p.fieldRef(from.FieldRef, envFields(), path.Child("fieldRef"))
	}
	if from.ResourceFieldRef != nil {
		n++
		p.resourceFieldRef(from.ResourceFieldRef, false, path.Child("resourceFieldRef"))
	}
	if from.ConfigMapKeyRef != nil {
		n++
		p.keyRef(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, path.Child("configMapKeyRef"))
	}
	if from.SecretKeyRef != nil {
		n++
		p.keyRef(from.SecretKeyRef.Name, from.SecretKeyRef.Key, path.Child("secretKeyRef"))
	}
	switch {
	case n == 0:
		p.invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case v.Value != "":
		p.invalid(path, "", "may not be specified when `value` is not empty")
	case n > 1:
		p.invalid(path, "", "may not have more than one field specified at a time")
	}
}

func (p *problems) keyRef(name, key string, path *field.Path) {
	p.messages(path.Child("name"), name, utilvalidation.IsDNS1123Subdomain(name))
	if p.some(path.Child("key"), key) {
		p.messages(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))
	}
}

// envFields are the fields of a pod that an environment variable can be taken from, volumeFields those of a file.
func envFields() sets.Set[string] {
	return sets.New("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
}

func volumeFields() sets.Set[string] {
	return sets.New("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
}

// knownPodFields can be named in a field reference; which are allowed depends on its place.
func knownPodFields() sets.Set[string] {
	return envFields().Union(volumeFields()).Insert("spec.host", "spec.hostNetwork", "spec.restartPolicy", "spec.schedulerName",
		"status.nominatedNodeName", "status.phase")
}

func (p *problems) fieldRef(r *corev1.ObjectFieldSelector, valid sets.Set[string], path *field.Path) {
	if !p.some(path.Child("apiVersion"), r.APIVersion) {
		return
	}
	if !p.some(path.Child("fieldPath"), r.FieldPath) {
		return
	}
	at := path.Child("fieldPath")
	if r.APIVersion != "v1" {
		p.invalid(path.Child("apiVersion"), r.APIVersion, "error converting fieldPath: pods.ConversionNotSupported: "+r.APIVersion)
		return
	}
	name, subscript, subscripted := cutSubscript(r.FieldPath)
	if subscripted {
		switch name {
		case "metadata.annotations":
			p.messages(path, strings.ToLower(subscript), utilvalidation.IsQualifiedName(strings.ToLower(subscript)))
		case "metadata.labels":
			p.messages(path, subscript, utilvalidation.IsQualifiedName(subscript))
		default:
			p.invalid(path, name, "does not support subscript")
		}
		return
	}
	if !knownPodFields().Has(name) {
		p.invalid(at, r.FieldPath, "error converting fieldPath: field label not supported: "+r.FieldPath)
		return
	}
	if !valid.Has(name) {
		p.list = append(p.list, field.NotSupported(at, name, sets.List(valid)))
	}
}

// cutSubscript splits "metadata.labels['key']".
func cutSubscript(s string) (name, subscript string, ok bool) {
	rest, ok := strings.CutSuffix(s, "']")
	if !ok {
		return s, "", false
	}
	name, subscript, ok = strings.Cut(rest, "['")
	if !ok || name == "" {
		return s, "", false
	}
	return name, subscript, true
}

func (p *problems) resourceFieldRef(r *corev1.ResourceFieldSelector, inVolume bool, path *field.Path) {
	if inVolume && !p.some(path.Child("containerName"), r.ContainerName) {
		return
	}
	if !p.some(path.Child("resource"), r.Resource) {
		return
	}
	valid := []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory"}
	huge := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	if !huge && !slices.Contains(valid, r.Resource) {
		p.list = append(p.list, field.NotSupported(path.Child("resource"), r.Resource, valid))
	}
	p.divisor(r, path.Child("divisor"))
}

func (p *problems) divisor(r *corev1.ResourceFieldSelector, path *field.Path) {
	if r.Divisor.Cmp(resource.Quantity{}) == 0 {
		return
	}
	bytes := "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
	var allowed, what string
	switch _, name, _ := strings.Cut(r.Resource, "."); {
	case name == "cpu":
		allowed, what = "1m, 1", "only divisor's values 1m and 1 are supported with the cpu resource"
	case name == "memory":
		allowed, what = bytes, "only divisor's values "+bytes+" are supported with the memory resource"
	case name == "ephemeral-storage":
		allowed, what = bytes, "only divisor's values "+bytes+" are supported with the local ephemeral storage resource"
	case strings.HasPrefix(name, "hugepages-"):
		allowed, what = bytes, "only divisor's values "+bytes+" are supported with the hugepages resource"
	default:
		return
	}
	if !slices.Contains(strings.Split(allowed, ", "), r.Divisor.String()) {
		p.invalid(path, r.Resource, what)
	}
}
