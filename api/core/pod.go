package core

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

func pods() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Pod"),
		Plural:           "pods",
		Singular:         "pod",
		ShortNames:       []string{"po"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Pod) },
		NewList:          func() runtime.Object { return new(corev1.PodList) },
		Subresources: []api.Subresource{
			connected("attach", "PodAttachOptions"),
			{Name: "binding", Kind: kind("Binding"), Verbs: []string{"create"}},
			{Name: "ephemeralcontainers", Verbs: []string{"get", "patch", "update"}},
			{Name: "eviction", Kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, Verbs: []string{"create"}},
			connected("exec", "PodExecOptions"),
			{Name: "log", Verbs: []string{"get"}},
			connected("portforward", "PodPortForwardOptions"),
			proxied("PodProxyOptions"),
			api.Status(),
		},
		Default:              defaultPod,
		PrepareCreate:        preparePod,
		PrepareUpdate:        preparePodUpdate,
		PrepareStatusUpdate:  preparePodStatus,
		Validate:             validatePod,
		ValidateUpdate:       validatePodUpdate,
		ValidateStatusUpdate: validatePodStatusUpdate,
		Warnings:             podWarnings,
		FieldNames: []string{
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		},
		FieldValue:  podField,
		Columns:     podColumns(),
		Cells:       podCells,
		GracePeriod: podGracePeriod,
	}
}

func podField(obj api.Object, name string) string {
	pod := obj.(*corev1.Pod)
	switch name {
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "spec.restartPolicy":
		return string(pod.Spec.RestartPolicy)
	case "spec.schedulerName":
		return pod.Spec.SchedulerName
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName
	case "spec.hostNetwork":
		return strconv.FormatBool(pod.Spec.HostNetwork)
	case "status.phase":
		return string(pod.Status.Phase)
	case "status.podIP", "status.podIPs":
		// Only the first address can be selected, by both names.
		if len(pod.Status.PodIPs) > 0 {
			return pod.Status.PodIPs[0].IP
		}
		return pod.Status.PodIP
	case "status.nominatedNodeName":
		return pod.Status.NominatedNodeName
	}
	return ""
}

// podGracePeriod is the client's wish or what the spec says; nothing needs to end for a pod that no node has begun
// or that has ended already.
func podGracePeriod(obj api.Object, opts *metav1.DeleteOptions) int64 {
	pod := obj.(*corev1.Pod)
	var seconds int64
	switch {
	case opts != nil && opts.GracePeriodSeconds != nil:
		seconds = *opts.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	if seconds < 0 {
		return 1
	}
	return seconds
}

func preparePod(obj api.Object) {
	pod := obj.(*corev1.Pod)
	pod.Generation = 0
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(pod)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type:    corev1.PodScheduled,
			Status:  corev1.ConditionFalse,
			Reason:  corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	mergeAffinity(pod)
	syncAppArmor(pod)
}

func preparePodUpdate(obj, old api.Object) {
	obj.(*corev1.Pod).Status = old.(*corev1.Pod).Status
}

func preparePodStatus(obj, old api.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = before.Status.QOSClass
	}
	pod.OwnerReferences = before.OwnerReferences
	// Old and new form of the pod's addresses are kept in step; the old one wins, for clients that know no other.
	s := &pod.Status
	switch {
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	}
}

// PrepareEphemeralContainersUpdate takes everything but the ephemeral containers from old, for an update through the
// ephemeralcontainers subresource.
func PrepareEphemeralContainersUpdate(pod, old *corev1.Pod) {
	added := pod.Spec.EphemeralContainers
	fields, version := pod.ManagedFields, pod.ResourceVersion
	copied := old.DeepCopy()
	copied.Spec.EphemeralContainers = added
	copied.ManagedFields, copied.ResourceVersion = fields, version
	*pod = *copied
}
