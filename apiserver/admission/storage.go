package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"proa/api"
	"proa/client"
)

// StorageObjectInUseProtection marks volumes and claims so that they are not removed while in use.
type StorageObjectInUseProtection struct{ Pass }

// Name of the plugin.
func (StorageObjectInUseProtection) Name() string { return "StorageObjectInUseProtection" }

// Admit adds the finalizer.
func (StorageObjectInUseProtection) Admit(_ context.Context, a *Attributes) error {
	if a.Operation != Create || a.Subresource != "" {
		return nil
	}
	var finalizer string
	switch a.Resource.Key() {
	case "persistentvolumeclaims":
		finalizer = "kubernetes.io/pvc-protection"
	case "persistentvolumes":
		finalizer = "kubernetes.io/pv-protection"
	default:
		return nil
	}
	if present := a.Object.GetFinalizers(); !slices.Contains(present, finalizer) {
		a.Object.SetFinalizers(append(present, finalizer))
	}
	return nil
}

// DefaultStorageClass gives claims that name no class the default one.
type DefaultStorageClass struct {
	Pass
	classes client.TypedLister[*storagev1.StorageClass]
}

// NewDefaultStorageClass returns the plugin.
func NewDefaultStorageClass(c client.Interface) *DefaultStorageClass {
	return &DefaultStorageClass{classes: client.For[*storagev1.StorageClass](c).Lister(context.Background())}
}

// Name of the plugin.
func (*DefaultStorageClass) Name() string { return "DefaultStorageClass" }

// Admit sets the class.
func (p *DefaultStorageClass) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "persistentvolumeclaims", "", Create) {
		return nil
	}
	claim := a.Object.(*corev1.PersistentVolumeClaim)
	if volume.PersistentVolumeClaimHasClass(claim) {
		return nil
	}
	var found *storagev1.StorageClass
	for class := range p.classes.All("") {
		if isDefault(class, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class") &&
			(found == nil || newer(class, found)) {
			found = class
		}
	}
	if found != nil {
		claim.Spec.StorageClassName = new(found.Name)
	}
	return nil
}

// isDefault reports whether one of the annotations says so.
func isDefault(obj api.Object, annotations ...string) bool {
	return slices.ContainsFunc(annotations, func(key string) bool { return obj.GetAnnotations()[key] == "true" })
}

// newer: of several defaults the last made counts, of equally old ones the first by name.
func newer(a, b api.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Time.Equal(bt.Time) {
		return a.GetName() < b.GetName()
	}
	return at.After(bt.Time)
}

// PersistentVolumeClaimResize lets claims grow only when their class can do it.
type PersistentVolumeClaimResize struct {
	Pass
	classes client.TypedLister[*storagev1.StorageClass]
}

// NewPersistentVolumeClaimResize returns the plugin.
func NewPersistentVolumeClaimResize(c client.Interface) *PersistentVolumeClaimResize {
	return &PersistentVolumeClaimResize{classes: client.For[*storagev1.StorageClass](c).Lister(context.Background())}
}

// Name of the plugin.
func (*PersistentVolumeClaimResize) Name() string { return "PersistentVolumeClaimResize" }

// Validate checks the class of a growing claim.
func (p *PersistentVolumeClaimResize) Validate(_ context.Context, a *Attributes) error {
	if !on(a, "persistentvolumeclaims", "", Update) {
		return nil
	}
	claim, old := a.Object.(*corev1.PersistentVolumeClaim), a.OldObject.(*corev1.PersistentVolumeClaim)
	size, before := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before) <= 0 {
		return nil
	}
	if name := volume.GetPersistentVolumeClaimClass(claim); name != "" {
		if class, ok := p.classes.Get("", name); ok && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
			return nil
		}
	}
	return forbidText(a, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}
