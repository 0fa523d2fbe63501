// Package discovery tells clients which groups, versions and resources the server has: /api, /apis and what lies below, in
// the legacy form (one document per group version) and the aggregated form (one document for all).
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"proa/api"
)

// groupOrder is the order in which upstream lists the built-in groups; others follow by name. Clients resolve short names in
// this order.
var groupOrder = []string{
	"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
	"certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
	"discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io",
}

// Discovery holds the documents. It is safe for concurrent use.
type Discovery struct {
	mu      sync.RWMutex
	builtin []apidiscovery.APIGroupDiscovery
	dynamic map[string]apidiscovery.APIGroupDiscovery
	docs    *documents
}

// documents are derived from the groups and replaced whole.
type documents struct {
	groups []apidiscovery.APIGroupDiscovery // core first
	etag   string                           // of the aggregated form
}

// New returns the discovery of a table.
func New(t *api.Table) *Discovery {
	d := &Discovery{dynamic: map[string]apidiscovery.APIGroupDiscovery{}}
	byGroup := map[string]map[string][]apidiscovery.APIResourceDiscovery{}
	for r := range t.All() {
		for _, gv := range served(r) {
			if byGroup[gv.Group] == nil {
				byGroup[gv.Group] = map[string][]apidiscovery.APIResourceDiscovery{}
			}
			byGroup[gv.Group][gv.Version] = append(byGroup[gv.Group][gv.Version], describe(r, gv))
		}
	}
	for name, versions := range byGroup {
		d.builtin = append(d.builtin, Group(name, versions))
	}
	d.rebuild()
	return d
}

// served lists the versions of a resource with their groups.
func served(r *api.Resource) []schema.GroupVersion {
	out := []schema.GroupVersion{r.GroupVersion()}
	for _, v := range r.Versions {
		out = append(out, schema.GroupVersion{Group: cmp.Or(v.Group, r.Group), Version: v.Name})
	}
	return out
}

// Group puts together a group, its versions best first and its resources by name.
func Group(name string, versions map[string][]apidiscovery.APIResourceDiscovery) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for version, resources := range versions {
		slices.SortFunc(resources, func(a, b apidiscovery.APIResourceDiscovery) int { return strings.Compare(a.Resource, b.Resource) })
		g.Versions = append(g.Versions, apidiscovery.APIVersionDiscovery{
			Version: version, Resources: resources, Freshness: apidiscovery.DiscoveryFreshnessCurrent,
		})
	}
	slices.SortFunc(g.Versions, func(a, b apidiscovery.APIVersionDiscovery) int {
		return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return g
}

// describe is a resource in one of its versions.
func describe(r *api.Resource, gv schema.GroupVersion) apidiscovery.APIResourceDiscovery {
	scope := apidiscovery.ScopeCluster
	if r.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	out := apidiscovery.APIResourceDiscovery{
		Resource:         r.Plural,
		ResponseKind:     &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: r.Kind},
		Scope:            scope,
		SingularResource: r.Singular,
		Verbs:            r.Verbs,
		ShortNames:       r.ShortNames,
		Categories:       r.Categories,
	}
	if out.Verbs == nil {
		out.Verbs = api.AllVerbs
	}
	for _, s := range r.Subresources {
		kind := metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: r.Kind}
		if !s.Kind.Empty() {
			kind = metav1.GroupVersionKind(s.Kind)
		}
		out.Subresources = append(out.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: s.Name, ResponseKind: &kind, Verbs: s.Verbs,
		})
	}
	slices.SortFunc(out.Subresources, func(a, b apidiscovery.APISubresourceDiscovery) int {
		return strings.Compare(a.Subresource, b.Subresource)
	})
	return out
}

// Set adds or replaces a dynamic group; Remove takes it away.
func (d *Discovery) Set(g apidiscovery.APIGroupDiscovery) {
	d.mu.Lock()
	d.dynamic[g.Name] = g
	d.mu.Unlock()
	d.rebuild()
}

// Remove takes a dynamic group away.
func (d *Discovery) Remove(name string) {
	d.mu.Lock()
	delete(d.dynamic, name)
	d.mu.Unlock()
	d.rebuild()
}

func (d *Discovery) rebuild() {
	d.mu.Lock()
	defer d.mu.Unlock()
	groups := slices.Clone(d.builtin)
	for _, g := range d.dynamic {
		groups = append(groups, g)
	}
	rank := func(g apidiscovery.APIGroupDiscovery) int {
		if i := slices.Index(groupOrder, g.Name); i >= 0 {
			return i
		}
		return len(groupOrder)
	}
	slices.SortFunc(groups, func(a, b apidiscovery.APIGroupDiscovery) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
	h := sha256.New()
	for i := range groups {
		data, err := groups[i].Marshal()
		if err != nil {
			panic(err) // generated code that only fails on broken memory
		}
		h.Write(data)
	}
	d.docs = &documents{groups: groups, etag: `"` + strings.ToUpper(hex.EncodeToString(h.Sum(nil))) + `"`}
}

func (d *Discovery) current() *documents {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.docs
}

// Handlers are to be mounted at /api, /api/v1, /apis and /apis/.
func (d *Discovery) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/api":    http.HandlerFunc(d.serveAPI),
		"/api/":   http.HandlerFunc(d.serveBelow),
		"/apis":   http.HandlerFunc(d.serveAPIs),
		"/apis/":  http.HandlerFunc(d.serveBelow),
		"/api/v1": http.HandlerFunc(d.serveBelow),
	}
}

// storageHash names the storage version of a resource, so that clients notice when it moves.
func storageHash(group, version, kind string) string {
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}
