package volumes

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// hugePageOptions bound a volume in huge pages by what the pod requests of them, and by its size limit.
func hugePageOptions(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) (string, error) {
	page, size, err := pageSize(pod, source.Medium)
	if err != nil {
		return "", err
	}
	if source.SizeLimit != nil && source.SizeLimit.Value() > 0 {
		size = min(size, source.SizeLimit.Value())
	}
	return fmt.Sprintf("pagesize=%d,size=%d", page, size), nil
}

// pageSize of a medium, and how much of such pages the pod requests. "HugePages" alone is the one size that is requested.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (page, requested int64, err error) {
	sizes := map[string]int64{}
	for i := range pod.Spec.Containers {
		for name, quantity := range pod.Spec.Containers[i].Resources.Requests {
			if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				sizes[size] += quantity.Value()
			}
		}
	}
	wanted, exact := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	if !exact {
		if len(sizes) != 1 {
			return 0, 0, errors.New("medium \"HugePages\" needs containers that request huge pages of exactly one size")
		}
		for size := range sizes {
			wanted = size
		}
	}
	quantity, err := resource.ParseQuantity(wanted)
	if err != nil {
		return 0, 0, fmt.Errorf("page size of medium %q: %w", medium, err)
	}
	for size, sum := range sizes {
		if q, err := resource.ParseQuantity(size); err == nil && q.Cmp(quantity) == 0 {
			return quantity.Value(), sum, nil
		}
	}
	return 0, 0, fmt.Errorf("medium %q is not requested by any container", medium)
}
