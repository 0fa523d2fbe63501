package api

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ContainersAndImages are the cells of the columns Containers and Images: comma-separated, in the order of the spec.
func ContainersAndImages(containers []corev1.Container) (names, images string) {
	var n, i []string
	for _, c := range containers {
		n = append(n, c.Name)
		i = append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// ContainersColumn, ImagesColumn and SelectorColumn are the wide columns of kinds with a pod template.
func ContainersColumn() Column {
	return Wide("Containers", "Names of each container in the template.")
}

// ImagesColumn is filled with the second result of ContainersAndImages.
func ImagesColumn() Column {
	return Wide("Images", "Images referenced by each container in the template.")
}

// SelectorColumn is filled with Selector; doc is the selector field's own documentation.
func SelectorColumn(doc string) Column { return Wide("Selector", doc) }

// Selector is the cell of a label selector; "<none>" when it is absent or, as it selects everything, empty.
func Selector(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }

// LabelSet is the cell of a plain map of labels: "a=b,c=d" in order of keys, or "<none>".
func LabelSet(m map[string]string) string {
	if len(m) == 0 {
		return "<none>"
	}
	return labels.Set(m).String()
}
