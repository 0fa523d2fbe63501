// Package core holds the kinds of the API group "": pods, services, nodes, namespaces and the rest, each in a file of its
// own with defaulting, validation, update rules, table columns and selectable fields. Events are served as
// events.k8s.io/v1 too. Kinds of other groups that carry a pod template use DefaultPodTemplate, ValidatePodTemplate and
// PodTemplateWarnings of this package.
package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

// Resources of the group "", in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		bindings(),
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(),
		persistentVolumeClaims(),
		persistentVolumes(),
		pods(),
		podTemplates(),
		replicationControllers(),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(),
	}
}

func kind(name string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(name) }

// proxied are the verbs of a proxy subresource, connected those of exec, attach and port-forward.
func proxied(options string) api.Subresource {
	return api.Subresource{Name: "proxy", Kind: kind(options), Verbs: []string{"create", "delete", "get", "patch", "update"}}
}

func connected(name, options string) api.Subresource {
	return api.Subresource{Name: name, Kind: kind(options), Verbs: []string{"create", "get"}}
}

// withoutDeleteCollection are the verbs of namespaces.
func withoutDeleteCollection() []string {
	return []string{"create", "delete", "get", "list", "patch", "update", "watch"}
}

func dnsLabel(name string, prefix bool) []string { return validation.NameIsDNSLabel(name, prefix) }
