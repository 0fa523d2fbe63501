package connect

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/apiserver/request"
)

// containerNames lists the containers of a pod in the order a user reads them.
func containerNames(pod *corev1.Pod) (plain, all []string) {
	for _, c := range pod.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		plain = append(plain, c.Name)
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	return plain, all
}

// container is the container that a request means: the one it names, or the pod's only one.
func container(pod *corev1.Pod, name string) (string, error) {
	plain, all := containerNames(pod)
	if name == "" {
		if len(plain) == 1 {
			return plain[0], nil
		}
		text := fmt.Sprintf("a container name must be specified for pod %s, choose one of: [%s]", pod.Name, strings.Join(plain, " "))
		if n := len(pod.Spec.InitContainers); n > 0 {
			var names []string
			for _, c := range pod.Spec.InitContainers {
				names = append(names, c.Name)
			}
			text += fmt.Sprintf(" or one of the init containers: [%s]", strings.Join(names, " "))
		}
		return "", apierrors.NewBadRequest(text)
	}
	for _, n := range all {
		if n == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}

func (x *connector) exec(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	if len(r.URL.Query()["command"]) == 0 {
		return apierrors.NewBadRequest("you must specify at least one command for the container")
	}
	return x.stream(w, r, info, "exec")
}

func (x *connector) attach(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	return x.stream(w, r, info, "attach")
}

// stream leads to the node's /exec or /attach.
func (x *connector) stream(w http.ResponseWriter, r *http.Request, info *request.Info, verb string) error {
	pod, err := x.pod(r.Context(), info)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	name, err := container(pod, q.Get("container"))
	if err != nil {
		return err
	}
	out := url.Values{}
	for from, to := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if v := q.Get(from); v == "true" || v == "1" {
			out.Set(to, "1")
		}
	}
	tty := out.Get("tty") == "1"
	if tty && out.Get("error") == "1" {
		// A terminal has one output.
		out.Del("error")
	}
	if len(out) == 0 || (len(out) == 1 && tty) {
		return apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	out["command"] = q["command"]
	return x.toNode(w, r, pod, "/"+verb+"/"+pod.Namespace+"/"+pod.Name+"/"+name, out)
}

func (x *connector) portForward(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	pod, err := x.pod(r.Context(), info)
	if err != nil {
		return err
	}
	out := url.Values{}
	if ports := r.URL.Query()["ports"]; len(ports) > 0 {
		// WebSocket clients name the ports in the URL.
		out["port"] = ports
	}
	return x.toNode(w, r, pod, "/portForward/"+pod.Namespace+"/"+pod.Name, out)
}

func (x *connector) toNode(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, path string, query url.Values) error {
	target, err := x.nodeURL(r.Context(), pod.Spec.NodeName)
	if err != nil {
		return err
	}
	target.Path, target.RawQuery = path, query.Encode()
	forward(w, r, target, x.nodes, nil)
	return nil
}
