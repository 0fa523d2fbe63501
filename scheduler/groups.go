package scheduler

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa/api"
	"proa/client"
)

// others are the objects of further kinds that plugins look up by name. The Scheduler's mutex guards them.
type others struct {
	namespaces map[string]labels.Set
	services   map[string]map[string]labels.Selector // by namespace and name
	budgets    map[string]map[string]*policyv1.PodDisruptionBudget
	claims     map[objectKey]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	classes    map[string]*storagev1.StorageClass
	csiNodes   map[string]*storagev1.CSINode
	// promised volumes have been chosen for a claim that is not bound yet.
	promised map[string]bool
	// volumesChanged is closed when a claim changes.
	volumesChanged chan struct{}
	// owners' selectors by kind, namespace and name
	owners map[ownerKey]labels.Selector
}

type objectKey struct{ namespace, name string }

type ownerKey struct{ kind, namespace, name string }

func newOthers() others {
	return others{namespaces: map[string]labels.Set{}, services: map[string]map[string]labels.Selector{}, owners: map[ownerKey]labels.Selector{},
		budgets: map[string]map[string]*policyv1.PodDisruptionBudget{},
		claims:  map[objectKey]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, csiNodes: map[string]*storagev1.CSINode{},
		promised: map[string]bool{}, volumesChanged: make(chan struct{}),
	}
}

// keep takes an object into account.
func (o *others) keep(e client.Event) {
	switch obj := e.Object().(type) {
	case *corev1.Namespace:
		if e.New == nil {
			delete(o.namespaces, obj.Name)
		} else {
			o.namespaces[obj.Name] = obj.Labels
		}
	case *corev1.Service:
		if e.New == nil || len(obj.Spec.Selector) == 0 {
			delete(o.services[obj.Namespace], obj.Name)
			return
		}
		if o.services[obj.Namespace] == nil {
			o.services[obj.Namespace] = map[string]labels.Selector{}
		}
		o.services[obj.Namespace][obj.Name] = labels.SelectorFromSet(obj.Spec.Selector)
	case *policyv1.PodDisruptionBudget:
		if e.New == nil {
			delete(o.budgets[obj.Namespace], obj.Name)
			return
		}
		if o.budgets[obj.Namespace] == nil {
			o.budgets[obj.Namespace] = map[string]*policyv1.PodDisruptionBudget{}
		}
		o.budgets[obj.Namespace][obj.Name] = obj
	case *corev1.PersistentVolumeClaim:
		keepIn(o.claims, objectKey{obj.Namespace, obj.Name}, obj, e.New == nil)
		close(o.volumesChanged)
		o.volumesChanged = make(chan struct{})
	case *corev1.PersistentVolume:
		keepIn(o.volumes, obj.Name, obj, e.New == nil)
	case *storagev1.StorageClass:
		keepIn(o.classes, obj.Name, obj, e.New == nil)
	case *storagev1.CSINode:
		keepIn(o.csiNodes, obj.Name, obj, e.New == nil)
	case *corev1.ReplicationController:
		o.keepOwner("ReplicationController", obj, e.New == nil, labels.SelectorFromSet(obj.Spec.Selector))
	case *appsv1.ReplicaSet:
		o.keepOwner("ReplicaSet", obj, e.New == nil, selectorOf(obj.Spec.Selector))
	case *appsv1.StatefulSet:
		o.keepOwner("StatefulSet", obj, e.New == nil, selectorOf(obj.Spec.Selector))
	}
}

func keepIn[K comparable, T any](m map[K]T, key K, obj T, gone bool) {
	if gone {
		delete(m, key)
	} else {
		m[key] = obj
	}
}

// classOf returns a claim's storage class, nil for none.
func (o *others) classOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	return o.classes[*claim.Spec.StorageClassName]
}

func (o *others) keepOwner(kind string, obj api.Object, gone bool, selector labels.Selector) {
	key := ownerKey{kind, obj.GetNamespace(), obj.GetName()}
	if gone {
		delete(o.owners, key)
	} else {
		o.owners[key] = selector
	}
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// groupOf returns the selector of the pods that a pod belongs together with: those of the services that select it and of
// its owner. Nil: none.
func (o *others) groupOf(pod *corev1.Pod) labels.Selector {
	var requirements labels.Requirements
	for _, selector := range o.services[pod.Namespace] {
		if selector.Matches(labels.Set(pod.Labels)) {
			r, _ := selector.Requirements()
			requirements = append(requirements, r...)
		}
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		if selector := o.owners[ownerKey{ref.Kind, pod.Namespace, ref.Name}]; selector != nil {
			r, _ := selector.Requirements()
			requirements = append(requirements, r...)
		}
	}
	if len(requirements) == 0 {
		return nil
	}
	return labels.NewSelector().Add(requirements...)
}
