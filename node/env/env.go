// Package env works out what a container finds in its environment: variables from the pod, its fields and resources,
// ConfigMaps, Secrets and services, and the expansion of references to them in commands and arguments.
package env

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Sources reads what variables refer to. Objects are shared and must not be changed.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Input of Container.
type Input struct {
	Pod *corev1.Pod
	// Services that the container is told of; see ServiceVariables.
	Services []*corev1.Service
	// Allocatable of the node, the limit of containers without one.
	Allocatable corev1.ResourceList
	HostIPs     []string
	PodIPs      []string
	Sources     Sources
	// Invalid is told of the keys of a source that are no names of variables.
	Invalid func(kind, name string, keys []string)
}

// Variable of an environment.
type Variable struct{ Name, Value string }

// Container returns the environment of c in a stable order, later declarations winning.
func Container(ctx context.Context, in Input, c *corev1.Container) ([]Variable, error) {
	var order []string
	values := map[string]string{}
	set := func(name, value string) {
		if _, ok := values[name]; !ok {
			order = append(order, name)
		}
		values[name] = value
	}
	for _, from := range c.EnvFrom {
		if err := envFrom(ctx, in, from, set); err != nil {
			return nil, err
		}
	}
	services := ServiceVariables(in.Services)
	for _, v := range c.Env {
		value, ok, err := value(ctx, in, c, v, func(name string) (string, bool) {
			if value, ok := values[name]; ok {
				return value, true
			}
			value, ok := services[name]
			return value, ok
		})
		if err != nil {
			return nil, err
		}
		if ok {
			set(v.Name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, ok := values[name]; !ok {
			set(name, services[name])
		}
	}
	out := make([]Variable, 0, len(order))
	for _, name := range order {
		out = append(out, Variable{name, values[name]})
	}
	return out, nil
}

func envFrom(ctx context.Context, in Input, from corev1.EnvFromSource, set func(name, value string)) error {
	data := map[string]string{}
	var kind, name string
	switch {
	case from.ConfigMapRef != nil:
		kind, name = "ConfigMap", from.ConfigMapRef.Name
		object, err := in.Sources.ConfigMap(ctx, in.Pod.Namespace, name)
		if err != nil {
			if apierrors.IsNotFound(err) && optional(from.ConfigMapRef.Optional) {
				return nil
			}
			return err
		}
		maps.Copy(data, object.Data)
	case from.SecretRef != nil:
		kind, name = "Secret", from.SecretRef.Name
		object, err := in.Sources.Secret(ctx, in.Pod.Namespace, name)
		if err != nil {
			if apierrors.IsNotFound(err) && optional(from.SecretRef.Optional) {
				return nil
			}
			return err
		}
		for k, v := range object.Data {
			data[k] = string(v)
		}
	default:
		return nil
	}
	var invalid []string
	for _, k := range slices.Sorted(maps.Keys(data)) {
		key := from.Prefix + k
		if len(validation.IsEnvVarName(key)) > 0 {
			invalid = append(invalid, key)
			continue
		}
		set(key, data[k])
	}
	if len(invalid) > 0 && in.Invalid != nil {
		in.Invalid(kind, name, invalid)
	}
	return nil
}

func value(ctx context.Context, in Input, c *corev1.Container, v corev1.EnvVar, lookup func(string) (string, bool)) (string, bool, error) {
	from := v.ValueFrom
	if from == nil {
		return Expand(v.Value, lookup), true, nil
	}
	switch {
	case from.FieldRef != nil:
		value, err := PodField(in.Pod, from.FieldRef.FieldPath, in.HostIPs, in.PodIPs)
		return value, true, err
	case from.ResourceFieldRef != nil:
		target := c
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			if target = Find(in.Pod, name); target == nil {
				return "", false, fmt.Errorf("container %s not found", name)
			}
		}
		value, err := ResourceField(target, from.ResourceFieldRef, in.Allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := in.Sources.ConfigMap(ctx, in.Pod.Namespace, ref.Name)
		if err != nil {
			if apierrors.IsNotFound(err) && optional(ref.Optional) {
				return "", false, nil
			}
			return "", false, err
		}
		value, ok := object.Data[ref.Key]
		if !ok && !optional(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := in.Sources.Secret(ctx, in.Pod.Namespace, ref.Name)
		if err != nil {
			if apierrors.IsNotFound(err) && optional(ref.Optional) {
				return "", false, nil
			}
			return "", false, err
		}
		value, ok := object.Data[ref.Key]
		if !ok && !optional(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
		}
		return string(value), ok, nil
	}
	return "", false, errors.New("environment variable " + v.Name + " has a source of an unknown kind")
}

func optional(b *bool) bool { return b != nil && *b }

// Find returns the container, init container or ephemeral container called name, or nil.
func Find(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

// ServiceVariables are the variables by which containers find services without DNS.
func ServiceVariables(services []*corev1.Service) map[string]string {
	out := map[string]string{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		name := variableName(s.Name)
		out[name+"_SERVICE_HOST"] = s.Spec.ClusterIP
		out[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
		for i, p := range s.Spec.Ports {
			if p.Name != "" {
				out[name+"_SERVICE_PORT_"+variableName(p.Name)] = strconv.Itoa(int(p.Port))
			}
			protocol := string(p.Protocol)
			if protocol == "" {
				protocol = "TCP"
			}
			url := strings.ToLower(protocol) + "://" + net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port)))
			if i == 0 {
				out[name+"_PORT"] = url
			}
			prefix := fmt.Sprintf("%s_PORT_%d_%s", name, p.Port, strings.ToUpper(protocol))
			out[prefix] = url
			out[prefix+"_PROTO"] = strings.ToLower(protocol)
			out[prefix+"_PORT"] = strconv.Itoa(int(p.Port))
			out[prefix+"_ADDR"] = s.Spec.ClusterIP
		}
	}
	return out
}

func variableName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
