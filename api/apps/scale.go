package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
)

func getDeploymentScale(obj api.Object) (spec, status int32, selector string) {
	d := obj.(*appsv1.Deployment)
	return replicas(d.Spec.Replicas), d.Status.Replicas, selectorText(d.Spec.Selector)
}

func setDeploymentScale(obj api.Object, n int32) { obj.(*appsv1.Deployment).Spec.Replicas = &n }

func getReplicaSetScale(obj api.Object) (spec, status int32, selector string) {
	rs := obj.(*appsv1.ReplicaSet)
	return replicas(rs.Spec.Replicas), rs.Status.Replicas, selectorText(rs.Spec.Selector)
}

func setReplicaSetScale(obj api.Object, n int32) { obj.(*appsv1.ReplicaSet).Spec.Replicas = &n }

func getStatefulSetScale(obj api.Object) (spec, status int32, selector string) {
	s := obj.(*appsv1.StatefulSet)
	return replicas(s.Spec.Replicas), s.Status.Replicas, selectorText(s.Spec.Selector)
}

func setStatefulSetScale(obj api.Object, n int32) { obj.(*appsv1.StatefulSet).Spec.Replicas = &n }

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// selectorText is the selector as the scale subresource and the wide columns show it.
func selectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}
