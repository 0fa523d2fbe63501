package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	pods       = "/api/v1/namespaces/default/pods"
	nodes      = "/api/v1/nodes"
)

// object is JSON in the making.
type object = map[string]any

func encode(o object) []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // maps of strings and numbers cannot fail
	}
	return data
}

// configMap has 1 KB.
func configMap(name string) []byte {
	return encode(object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"name": name},
		"data":     object{"value": strings.Repeat("0123456789abcdef", 56)},
	})
}

// pod is a plain one, with requests and nothing else that a scheduler minds.
func pod(name string) []byte {
	return encode(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": object{"app": "bench"}},
		"spec": object{
			"terminationGracePeriodSeconds": 0,
			"containers": []object{{
				"name": "main", "image": "registry.k8s.io/pause:3.10",
				"resources": object{"requests": object{"cpu": "100m", "memory": "64Mi"}},
			}},
		},
	})
}

// bigPod is a pod as applications have them: about 3 KB when it comes back. Its node does not exist, so that nobody works
// on it.
func bigPod(i int) []byte {
	env := []object{}
	for n := range 4 {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", n), "value": fmt.Sprintf("value-%d-of-%d", n, i)})
	}
	container := func(name string) object {
		return object{
			"name": name, "image": "registry.example.com/shop/" + name + ":v1.27.3", "env": env,
			"ports":          []object{{"name": "http", "containerPort": 8080}},
			"resources":      object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"memory": "256Mi"}},
			"readinessProbe": object{"httpGet": object{"path": "/ready", "port": "http"}, "periodSeconds": 10},
		}
	}
	return encode(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name":        fmt.Sprintf("pod-%d", i),
			"labels":      object{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": fmt.Sprint(i % 100), "pod-template-hash": "5d4f8b7c9"},
			"annotations": object{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		},
		"spec": object{
			"nodeName":   "elsewhere",
			"containers": []object{container("web")},
		},
	})
}

// node has room for 110 pods and says that it is ready.
func node(i int) []byte {
	room := object{"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
	name := fmt.Sprintf("node-%d", i)
	return encode(object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": object{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3),
		}},
		"status": object{
			"capacity": room, "allocatable": room,
			"conditions": []object{{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
		},
	})
}
