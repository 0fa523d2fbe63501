package env

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PodField reads one field of a pod as the downward API does.
func PodField(pod *corev1.Pod, path string, hostIPs, podIPs []string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("invalid fieldPath %q", path)
	}
	first := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return list[0]
	}
	switch path {
	case "metadata.annotations":
		return mapText(pod.Annotations), nil
	case "metadata.labels":
		return mapText(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(hostIPs), nil
	case "status.hostIPs":
		return strings.Join(hostIPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func subscript(path string) (name, key string, ok bool) {
	if !strings.HasSuffix(path, "']") {
		return "", "", false
	}
	name, key, ok = strings.Cut(strings.TrimSuffix(path, "']"), "['")
	return name, key, ok
}

func mapText(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(lines, "\n")
}

// ResourceField reads a request or limit of a container, in units of the divisor, rounded up. Limits that are not set
// are the node's.
func ResourceField(c *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	var quantity resource.Quantity
	var ok bool
	switch kind {
	case "limits":
		if quantity, ok = c.Resources.Limits[resourceName]; !ok || quantity.IsZero() {
			quantity = allocatable[resourceName]
		}
	case "requests":
		quantity = c.Resources.Requests[resourceName]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := quantity.Value(), divisor.Value()
	if resourceName == corev1.ResourceCPU {
		n, d = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt((n+d-1)/d, 10), nil
}
