package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels by which a runtime's sandboxes and containers are known to belong to pods.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

var running = &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}

// statusError is an answer other than success, with its text for the client.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func refuse(code int, format string, args ...any) error {
	return &statusError{code, fmt.Sprintf(format, args...)}
}

func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if known, ok := err.(*statusError); ok {
		code = known.code
	}
	http.Error(w, err.Error(), code)
}

func uid(text string) types.UID { return types.UID(text) }

// pod finds the pod of a request's path.
func (s *Server) pod(r *http.Request) (*corev1.Pod, error) {
	pod, ok := s.Pods.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if want := r.PathValue("uid"); !ok || (want != "" && want != string(pod.UID)) {
		return nil, refuse(http.StatusNotFound, "pod %q not found", r.PathValue("pod"))
	}
	return pod, nil
}

// containers lists a pod's containers of a name, the newest first.
func (s *Server) containers(ctx context.Context, pod *corev1.Pod, name string) ([]*cri.Container, error) {
	list, err := s.Runtime.ListContainers(ctx, &cri.ContainerFilter{LabelSelector: map[string]string{
		labelPodNamespace: pod.Namespace, labelPodName: pod.Name, labelContainerName: name,
	}})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c *cri.Container) bool {
		// A static pod's containers have a uid of their own; any other's must be those of this pod and not of an older
		// one of the same name.
		return pod.Annotations[corev1.MirrorPodAnnotationKey] == "" && c.Labels[labelPodUID] != string(pod.UID)
	})
	slices.SortFunc(list, func(a, b *cri.Container) int { return int(min(max(b.CreatedAt-a.CreatedAt, -1), 1)) })
	return list, nil
}

// runningContainer finds the container of a request's path.
func (s *Server) runningContainer(r *http.Request) (string, error) {
	pod, err := s.pod(r)
	if err != nil {
		return "", refuse(http.StatusNotFound, "pod does not exist")
	}
	list, err := s.containers(r.Context(), pod, r.PathValue("container"))
	if err != nil {
		return "", err
	}
	for _, container := range list {
		if container.State == cri.ContainerState_CONTAINER_RUNNING {
			return container.Id, nil
		}
	}
	return "", refuse(http.StatusNotFound, "container not found (%q)", r.PathValue("container"))
}

// loggedContainer finds the container whose log a request asks for.
func (s *Server) loggedContainer(ctx context.Context, pod *corev1.Pod, name string, previous bool) (string, error) {
	status, ok := containerStatus(pod, name)
	if !ok && !hasContainer(pod, name) {
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is not available", name, pod.Name)
	}
	if previous {
		last := status.LastTerminationState.Terminated
		if last == nil || last.ContainerID == "" {
			return "", refuse(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name, pod.Name)
		}
		_, id, _ := strings.Cut(last.ContainerID, "://")
		return id, nil
	}
	list, err := s.containers(ctx, pod, name)
	if err != nil {
		return "", err
	}
	for _, container := range list {
		// One that is created but not started has no log, the one before it may have.
		if container.State != cri.ContainerState_CONTAINER_CREATED {
			return container.Id, nil
		}
	}
	if waiting := status.State.Waiting; waiting != nil {
		reason := waiting.Reason
		switch reason {
		case "ErrImagePull", "ImagePullBackOff":
			reason = "trying and failing to pull image"
		}
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", name, pod.Name, reason)
	}
	if status.State.Terminated != nil {
		return "", refuse(http.StatusBadRequest, "container %q in pod %q is terminated", name, pod.Name)
	}
	return "", refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: no logs yet", name, pod.Name)
}

func containerStatus(pod *corev1.Pod, name string) (corev1.ContainerStatus, bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, status := range list {
			if status.Name == name {
				return status, true
			}
		}
	}
	return corev1.ContainerStatus{}, false
}

func hasContainer(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) ||
		slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// sandbox finds a pod's sandbox that is ready.
func (s *Server) sandbox(ctx context.Context, pod *corev1.Pod) (string, error) {
	list, err := s.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{labelPodNamespace: pod.Namespace, labelPodName: pod.Name},
	})
	if err != nil {
		return "", err
	}
	for _, sandbox := range list {
		if pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || sandbox.Labels[labelPodUID] == string(pod.UID) {
			return sandbox.Id, nil
		}
	}
	return "", refuse(http.StatusNotFound, "sandbox of pod %q not found", pod.Name)
}
