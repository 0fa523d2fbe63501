package api

import (
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NewScheme returns a scheme of every kind and list in t, in all served versions, of the kinds that only subresources
// speak, and of the option and table kinds that every group version understands.
func NewScheme(t *Table) *runtime.Scheme {
	s := runtime.NewScheme()
	versions := map[schema.GroupVersion]bool{}
	add := func(gvk schema.GroupVersionKind, obj runtime.Object) {
		if _, known := s.AllKnownTypes()[gvk]; !known {
			s.AddKnownTypeWithName(gvk, obj)
		}
		if gv := gvk.GroupVersion(); !versions[gv] {
			versions[gv] = true
			metav1.AddToGroupVersion(s, gv)
		}
	}
	addKind := func(gv schema.GroupVersion, kind string, virtual bool, newObject func() Object, newList func() runtime.Object) {
		add(gv.WithKind(kind), newObject())
		if list := newList; list != nil && !virtual {
			add(gv.WithKind(kind+"List"), list())
		}
	}
	for r := range t.All() {
		// What is virtual and cannot be listed has no list kind.
		noList := r.Virtual && !r.Serves("list")
		addKind(r.GroupVersion(), r.Kind, noList, r.New, r.NewList)
		for _, v := range r.Versions {
			group := v.Group
			if group == "" {
				group = r.Group
			}
			addKind(schema.GroupVersion{Group: group, Version: v.Name}, r.Kind, noList, v.New, v.NewList)
		}
	}
	for _, obj := range []runtime.Object{
		&corev1.PodAttachOptions{}, &corev1.PodExecOptions{}, &corev1.PodLogOptions{}, &corev1.PodPortForwardOptions{},
		&corev1.PodProxyOptions{}, &corev1.NodeProxyOptions{}, &corev1.ServiceProxyOptions{},
		&corev1.RangeAllocation{}, &corev1.SerializedReference{}, &corev1.Binding{},
	} {
		add(corev1.SchemeGroupVersion.WithKind(reflect.TypeOf(obj).Elem().Name()), obj)
	}
	// A list of anything, as kubectl makes it.
	add(corev1.SchemeGroupVersion.WithKind("List"), &corev1.List{})
	add(autoscalingv1.SchemeGroupVersion.WithKind("Scale"), &autoscalingv1.Scale{})
	add(policyv1.SchemeGroupVersion.WithKind("Eviction"), &policyv1.Eviction{})
	add(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), &authenticationv1.TokenRequest{})
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(s); err != nil {
		// Only a kind registered twice with two types could fail, which is a mistake in this file.
		panic(err)
	}
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}
