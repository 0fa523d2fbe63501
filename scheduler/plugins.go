package scheduler

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	"proa/client"
)

// defaultPlugins are all plugins in the order in which they are asked, with the weights of their scores.
func defaultPlugins() []weighted {
	return []weighted{
		{schedulingGates{}, 0},
		{nodeUnschedulable{}, 0},
		{nodeName{}, 0},
		{taintToleration{}, 3},
		{nodeAffinity{}, 2},
		{nodePorts{}, 0},
		{nodeResourcesFit{}, 1},
		{volumeRestrictions{}, 0},
		{nodeVolumeLimits{}, 0},
		{volumeBinding{}, 0},
		{volumeZone{}, 0},
		{podTopologySpread{}, 2},
		{interPodAffinity{}, 2},
		{balancedAllocation{}, 1},
		{imageLocality{}, 1},
	}
}

// scopes of the one subscription.
func (s *Scheduler) scopes() []client.Scope {
	c := s.config.Client
	return []client.Scope{
		client.For[*corev1.Namespace](c).Scope(),
		client.For[*corev1.Service](c).Scope(),
		client.For[*corev1.ReplicationController](c).Scope(),
		client.For[*appsv1.ReplicaSet](c).Scope(),
		client.For[*appsv1.StatefulSet](c).Scope(),
		client.For[*policyv1.PodDisruptionBudget](c).Scope(),
		client.For[*storagev1.StorageClass](c).Scope(),
		client.For[*storagev1.CSINode](c).Scope(),
		client.For[*corev1.PersistentVolume](c).Scope(),
		client.For[*corev1.PersistentVolumeClaim](c).Scope(),
		client.For[*corev1.Node](c).Scope(),
		client.For[*corev1.Pod](c).Scope(),
	}
}

// nodeEvent returns the node that an event added or changed, and what it was before.
func nodeEvent(e client.Event) (old, node *corev1.Node) {
	node, _ = e.New.(*corev1.Node)
	old, _ = e.Old.(*corev1.Node)
	return old, node
}

// podLeft reports whether a pod left its node or gave something up there.
func podLeft(e client.Event) bool {
	old, _ := e.Old.(*corev1.Pod)
	return old != nil && old.Spec.NodeName != ""
}
