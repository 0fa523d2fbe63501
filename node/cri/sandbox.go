package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxTimeout bounds starting and stopping a sandbox: CNI plugins and the first mounts of a cold disk are slow.
const sandboxTimeout = 4 * time.Minute

// RunPodSandbox implements runtime.Runtime.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *v1.PodSandboxConfig, handler string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	response, err := r.client.RunPodSandbox(ctx, &v1.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	r.remember(response.PodSandboxId, response.PodSandboxId)
	return response.PodSandboxId, nil
}

// StopPodSandbox implements runtime.Runtime.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	_, err := r.client.StopPodSandbox(ctx, &v1.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox implements runtime.Runtime.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	if _, err := r.client.RemovePodSandbox(ctx, &v1.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for container, sandbox := range r.sandboxes {
		if sandbox == id {
			delete(r.sandboxes, container)
		}
	}
	return nil
}

// PodSandboxStatus implements runtime.Runtime.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*v1.PodSandboxStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.PodSandboxStatus(ctx, &v1.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	return response.Status, nil
}

// ListPodSandbox implements runtime.Runtime.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *v1.PodSandboxFilter) ([]*v1.PodSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.ListPodSandbox(ctx, &v1.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return response.Items, nil
}

// NetworkNamespace returns the path of a sandbox's network namespace, empty when the sandbox is on the host's network.
func (r *Runtime) NetworkNamespace(ctx context.Context, sandbox string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.PodSandboxStatus(ctx, &v1.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	if response.Status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == v1.NamespaceMode_NODE {
		return "", nil
	}
	return namespacePath(response.Info["info"])
}

// namespacePath finds the network namespace in the runtime's own words: both containerd and CRI-O put the sandbox's OCI
// runtime spec into the verbose status, where a namespace without a path is the one of the sandbox's process.
func namespacePath(info string) (string, error) {
	var verbose struct {
		PID         int `json:"pid"`
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct {
					Type string `json:"type"`
					Path string `json:"path"`
				} `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info), &verbose); err != nil {
		return "", fmt.Errorf("read verbose sandbox status: %w", err)
	}
	for _, namespace := range verbose.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" && namespace.Path != "" {
			return namespace.Path, nil
		}
	}
	if verbose.PID > 0 {
		return fmt.Sprintf("/proc/%d/ns/net", verbose.PID), nil
	}
	return "", fmt.Errorf("verbose sandbox status names no network namespace")
}
