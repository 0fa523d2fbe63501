package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultPodTemplate fills in the absent fields of a pod template.
func DefaultPodTemplate(t *corev1.PodTemplateSpec) { DefaultPodSpec(&t.Spec) }

// DefaultPodSpec fills in the absent fields of a pod spec.
func DefaultPodSpec(spec *corev1.PodSpec) {}

// ValidatePodTemplate returns what is wrong with a pod template found at path.
func ValidatePodTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList { return nil }

// ValidatePodSpec returns what is wrong with a pod spec found at path, of a pod with the metadata.
func ValidatePodSpec(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	return nil
}

// PodTemplateWarnings returns what clients should be warned about in a pod template; old may be nil.
func PodTemplateWarnings(path *field.Path, t, old *corev1.PodTemplateSpec) []string { return nil }

// QOSClass computes the quality of service class of a pod from its resources.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass { return corev1.PodQOSBestEffort }
