package core

import (
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func persistentVolumes() *api.Resource {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind:    kind("PersistentVolume"),
		Plural:              "persistentvolumes",
		Singular:            "persistentvolume",
		ShortNames:          []string{"pv"},
		New:                 func() api.Object { return new(corev1.PersistentVolume) },
		NewList:             func() runtime.Object { return new(corev1.PersistentVolumeList) },
		Subresources:        []api.Subresource{api.Status()},
		Default:             defaultPersistentVolume,
		PrepareCreate:       preparePersistentVolume,
		PrepareStatusUpdate: preparePersistentVolumeStatus,
		Validate:            validatePersistentVolume,
		ValidateUpdate:      validatePersistentVolumeUpdate,
		Warnings:            persistentVolumeWarnings,
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Capacity", spec["capacity"]),
			api.Text("Access Modes", spec["accessModes"]),
			api.Text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]),
			api.Text("Status", status["phase"]),
			api.Text("Claim", spec["claimRef"]),
			api.Text("StorageClass", "StorageClass of the pv"),
			api.Text("VolumeAttributesClass", spec["volumeAttributesClassName"]),
			api.Text("Reason", status["reason"]),
			api.AgeColumn(),
			api.Wide("VolumeMode", spec["volumeMode"]),
		},
		Cells: persistentVolumeCells,
	}
}

func defaultPersistentVolume(obj api.Object) {
	pv := obj.(*corev1.PersistentVolume)
	setDefault(&pv.Status.Phase, corev1.VolumePending)
	spec := &pv.Spec
	setDefault(&spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	setPointer(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(spec.Capacity)
	defaultHostPath(spec.HostPath)
	defaultAzureDisk(spec.AzureDisk)
	if spec.RBD != nil {
		defaultRBD(&spec.RBD.RBDPool, &spec.RBD.RadosUser, &spec.RBD.Keyring)
	}
	if spec.ISCSI != nil {
		setDefault(&spec.ISCSI.ISCSIInterface, "default")
	}
	if spec.ScaleIO != nil {
		setDefault(&spec.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&spec.ScaleIO.FSType, "xfs")
	}
}

func preparePersistentVolume(obj api.Object) {
	pv := obj.(*corev1.PersistentVolume)
	now := metav1.Now()
	pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
}

// preparePersistentVolumeStatus notes when the phase changes, unless the client does so itself.
func preparePersistentVolumeStatus(obj, old api.Object) {
	pv, before := obj.(*corev1.PersistentVolume), old.(*corev1.PersistentVolume)
	t, was := pv.Status.LastPhaseTransitionTime, before.Status.LastPhaseTransitionTime
	switch {
	case pv.Status.Phase != before.Status.Phase && (t == nil || t.Equal(was)):
		now := metav1.Now()
		pv.Status.LastPhaseTransitionTime = &now
	case pv.Status.Phase == before.Status.Phase && t == nil:
		pv.Status.LastPhaseTransitionTime = was
	}
}

func validatePersistentVolume(obj api.Object) field.ErrorList {
	pv := obj.(*corev1.PersistentVolume)
	var p problems
	spec, at := &pv.Spec, field.NewPath("spec")
	if len(spec.AccessModes) == 0 {
		p.required(at.Child("accessModes"), "")
	}
	p.accessModes(spec.AccessModes, at.Child("accessModes"))
	p.capacity(spec.Capacity, at.Child("capacity"))
	oneOf(&p, at.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	if spec.NodeAffinity != nil {
		if spec.NodeAffinity.Required == nil {
			p.required(at.Child("nodeAffinity", "required"), "must specify required node constraints")
		} else {
			p.all(ValidateNodeSelector(spec.NodeAffinity.Required, at.Child("nodeAffinity", "required")))
		}
	}
	p.oneSource(p.persistentSources(pv), at)
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		p.forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	if spec.StorageClassName != "" {
		p.messages(at.Child("storageClassName"), spec.StorageClassName, utilvalidation.IsDNS1123Subdomain(spec.StorageClassName))
	}
	optional(&p, at.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	if c := spec.VolumeAttributesClassName; c != nil {
		if *c == "" {
			p.required(at.Child("volumeAttributesClassName"), "an empty string is disallowed")
		} else {
			p.messages(at.Child("volumeAttributesClassName"), *c, utilvalidation.IsDNS1123Subdomain(*c))
		}
		if spec.CSI == nil {
			p.required(at.Child("csi"), "has to be specified when using volumeAttributesClassName")
		}
	}
	return p.list
}

func (p *problems) capacity(list corev1.ResourceList, at *field.Path) {
	if len(list) == 0 {
		p.required(at, "")
	}
	if _, ok := list[corev1.ResourceStorage]; !ok || len(list) > 1 {
		p.list = append(p.list, field.NotSupported(at, list, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range sortedNames(list) {
		if q := list[name]; q.Sign() <= 0 {
			p.invalid(at.Key(string(name)), q.String(), "must be greater than zero")
		}
	}
}

func (p *problems) persistentSources(pv *corev1.PersistentVolume) []source {
	s := &pv.Spec.PersistentVolumeSource
	return []source{
		{"hostPath", s.HostPath != nil, func(at *field.Path) { p.hostPath(s.HostPath, at) }},
		{"gcePersistentDisk", s.GCEPersistentDisk != nil, func(at *field.Path) { p.gceDisk(s.GCEPersistentDisk, at) }},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil, func(at *field.Path) { p.awsDisk(s.AWSElasticBlockStore, at) }},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) {
			p.glusterfs(s.Glusterfs.EndpointsName, s.Glusterfs.Path, at)
			if ns := s.Glusterfs.EndpointsNamespace; ns != nil && *ns == "" {
				p.invalid(at.Child("endpointsNamespace"), *ns, "if the endpointnamespace is set, it must be a valid namespace name")
			}
		}},
		{"flocker", s.Flocker != nil, func(at *field.Path) { p.flocker(s.Flocker, at) }},
		{"nfs", s.NFS != nil, func(at *field.Path) { p.nfs(s.NFS, at) }},
		{"rbd", s.RBD != nil, func(at *field.Path) { p.rbd(s.RBD.CephMonitors, s.RBD.RBDImage, at) }},
		{"quobyte", s.Quobyte != nil, func(at *field.Path) { p.quobyte(s.Quobyte, at) }},
		{"cephfs", s.CephFS != nil, func(at *field.Path) { p.monitors(s.CephFS.Monitors, at) }},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) {
			p.iscsi(s.ISCSI.TargetPortal, s.ISCSI.IQN, s.ISCSI.Lun, s.ISCSI.InitiatorName, at)
			if (s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth) && s.ISCSI.SecretRef == nil {
				p.required(at.Child("secretRef"), "")
			}
			p.secretRef(s.ISCSI.SecretRef, at.Child("secretRef"))
		}},
		{"cinder", s.Cinder != nil, func(at *field.Path) {
			p.some(at.Child("volumeID"), s.Cinder.VolumeID)
			p.secretRef(s.Cinder.SecretRef, at.Child("secretRef"))
		}},
		{"fc", s.FC != nil, func(at *field.Path) { p.fibreChannel(s.FC, at) }},
		{"flexVolume", s.FlexVolume != nil, func(at *field.Path) { p.flexVolume(s.FlexVolume.Driver, s.FlexVolume.Options, at) }},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) {
			p.azureFile(s.AzureFile.SecretName, s.AzureFile.ShareName, at)
			if ns := s.AzureFile.SecretNamespace; ns != nil && *ns == "" {
				p.required(at.Child("secretNamespace"), "")
			}
		}},
		{"vsphereVolume", s.VsphereVolume != nil, func(at *field.Path) { p.some(at.Child("volumePath"), s.VsphereVolume.VolumePath) }},
		{"photonPersistentDisk", s.PhotonPersistentDisk != nil, func(at *field.Path) { p.some(at.Child("pdID"), s.PhotonPersistentDisk.PdID) }},
		{"portworxVolume", s.PortworxVolume != nil, func(at *field.Path) { p.some(at.Child("volumeID"), s.PortworxVolume.VolumeID) }},
		{"azureDisk", s.AzureDisk != nil, func(at *field.Path) { p.azureDisk(s.AzureDisk, at) }},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) {
			p.scaleIO(s.ScaleIO.Gateway, s.ScaleIO.System, s.ScaleIO.VolumeName, at)
		}},
		{"local", s.Local != nil, func(at *field.Path) { p.localVolume(pv, at) }},
		{"storageos", s.StorageOS != nil, func(at *field.Path) {
			var secret *string
			if s.StorageOS.SecretRef != nil {
				secret = &s.StorageOS.SecretRef.Name
			}
			p.storageOS(s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace, secret, at)
		}},
		{"csi", s.CSI != nil, func(at *field.Path) { p.csiVolume(s.CSI, at) }},
	}
}

func (p *problems) localVolume(pv *corev1.PersistentVolume, at *field.Path) {
	if p.some(at.Child("path"), pv.Spec.Local.Path) {
		p.noBacksteps(at.Child("path"), pv.Spec.Local.Path)
	}
	if pv.Spec.NodeAffinity == nil {
		p.required(field.NewPath("metadata").Child("annotations"), "Local volume requires node affinity")
	}
}

func (p *problems) csiVolume(c *corev1.CSIPersistentVolumeSource, at *field.Path) {
	p.csiDriver(c.Driver, at.Child("driver"))
	p.some(at.Child("volumeHandle"), c.VolumeHandle)
	for _, r := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"nodeStageSecretRef", c.NodeStageSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		p.secretRef(r.ref, at.Child(r.name))
	}
}

func (p *problems) secretRef(r *corev1.SecretReference, at *field.Path) {
	if r != nil {
		p.some(at.Child("name"), r.Name)
		p.some(at.Child("namespace"), r.Namespace)
	}
}

func validatePersistentVolumeUpdate(obj, old api.Object) field.ErrorList {
	pv, before := obj.(*corev1.PersistentVolume), old.(*corev1.PersistentVolume)
	var p problems
	at := field.NewPath("spec")
	p.all(validatePersistentVolume(pv))
	now, was := pv.Spec.PersistentVolumeSource.DeepCopy(), before.Spec.PersistentVolumeSource.DeepCopy()
	if now.CSI != nil && was.CSI != nil {
		// Secrets for expansion may be added to volumes of before there were such.
		if was.CSI.ControllerExpandSecretRef == nil {
			now.CSI.ControllerExpandSecretRef = nil
		}
		if was.CSI.NodeExpandSecretRef == nil {
			now.CSI.NodeExpandSecretRef = nil
		}
	}
	if !equality.Semantic.DeepEqual(now, was) {
		p.forbidden(at.Child("persistentvolumesource"), fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, now)))
	}
	p.immutable(at.Child("volumeMode"), pv.Spec.VolumeMode, before.Spec.VolumeMode)
	if before.Spec.NodeAffinity != nil {
		p.affinityKept(pv, before, at.Child("nodeAffinity"))
	}
	if before.Spec.VolumeAttributesClassName != nil && pv.Spec.VolumeAttributesClassName == nil {
		p.forbidden(at.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
	return p.list
}

// affinityKept checks that a volume's nodes stay the same, but for deprecated labels that make way for new ones.
func (p *problems) affinityKept(pv, old *corev1.PersistentVolume, at *field.Path) {
	renamed := func(a *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
		out := a.DeepCopy()
		if out == nil || out.Required == nil {
			return out
		}
		for i := range out.Required.NodeSelectorTerms {
			for j := range out.Required.NodeSelectorTerms[i].MatchExpressions {
				e := &out.Required.NodeSelectorTerms[i].MatchExpressions[j]
				e.Key = currentLabel(e.Key)
			}
		}
		return out
	}
	if !equality.Semantic.DeepEqual(renamed(pv.Spec.NodeAffinity), renamed(old.Spec.NodeAffinity)) {
		p.invalid(at, pv.Spec.NodeAffinity, "field is immutable, except for updating from beta label to GA")
	}
}

func currentLabel(key string) string {
	switch key {
	case corev1.LabelFailureDomainBetaZone:
		return corev1.LabelTopologyZone
	case corev1.LabelFailureDomainBetaRegion:
		return corev1.LabelTopologyRegion
	case corev1.LabelInstanceType:
		return corev1.LabelInstanceTypeStable
	case "beta.kubernetes.io/arch":
		return corev1.LabelArchStable
	case "beta.kubernetes.io/os":
		return corev1.LabelOSStable
	}
	return key
}

func persistentVolumeWarnings(obj, _ api.Object) []string {
	pv := obj.(*corev1.PersistentVolume)
	var w warnings
	meta, spec := field.NewPath("metadata", "annotations"), field.NewPath("spec")
	if _, ok := pv.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		w.add(meta.Key(corev1.BetaStorageClassAnnotation), `deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	if _, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		w.add(meta.Key(corev1.MountOptionAnnotation), `deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if q, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok {
		w.fractional(corev1.ResourceStorage, q, spec.Child("capacity"))
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		w.add(spec.Child("persistentVolumeReclaimPolicy"),
			"The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, t := range a.Required.NodeSelectorTerms {
			w.term(t, spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))
		}
	}
	s := &pv.Spec.PersistentVolumeSource
	for _, d := range []struct {
		name, since string
		set         bool
	}{
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+", s.PhotonPersistentDisk != nil},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+", s.ScaleIO != nil},
		{"storageOS", "deprecated in v1.22, non-functional in v1.25+", s.StorageOS != nil},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+", s.Glusterfs != nil},
		{"cephfs", "deprecated in v1.28, non-functional in v1.31+", s.CephFS != nil},
		{"rbd", "deprecated in v1.28, non-functional in v1.31+", s.RBD != nil},
	} {
		if d.set {
			w.add(spec.Child(d.name), d.since)
		}
	}
	return w.list
}

func persistentVolumeCells(obj api.Object, now time.Time) []any {
	pv := obj.(*corev1.PersistentVolume)
	claim := ""
	if r := pv.Spec.ClaimRef; r != nil {
		claim = r.Namespace + "/" + r.Name
	}
	phase := string(pv.Status.Phase)
	if pv.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	class := pv.Spec.StorageClassName
	if c, ok := pv.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = c
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return []any{pv.Name, size.String(), shortModes(pv.Spec.AccessModes), string(pv.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		class, orUnset(pv.Spec.VolumeAttributesClassName), pv.Status.Reason, api.Age(pv.CreationTimestamp, now),
		orUnset((*string)(pv.Spec.VolumeMode))}
}
