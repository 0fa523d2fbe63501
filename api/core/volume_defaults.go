package core

import (
	corev1 "k8s.io/api/core/v1"
)

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.Secret != nil:
		setPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		setPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		setPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Ephemeral != nil:
		if t := v.Ephemeral.VolumeClaimTemplate; t != nil {
			defaultClaimSpec(&t.Spec)
		}
	case v.Image != nil:
		setDefault(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.RBD != nil:
		defaultRBD(&v.RBD.RBDPool, &v.RBD.RadosUser, &v.RBD.Keyring)
	case v.ScaleIO != nil:
		setDefault(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&v.ScaleIO.FSType, "xfs")
	case v.ISCSI != nil:
		setDefault(&v.ISCSI.ISCSIInterface, "default")
	}
	defaultHostPath(v.HostPath)
	defaultAzureDisk(v.AzureDisk)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setPointer(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.ServiceAccountToken != nil {
			setPointer(&s.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
		if s.DownwardAPI != nil {
			defaultDownwardFiles(s.DownwardAPI.Items)
		}
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}

func defaultHostPath(h *corev1.HostPathVolumeSource) {
	if h != nil {
		setPointer(&h.Type, corev1.HostPathUnset)
	}
}

func defaultRBD(pool, user, keyring *string) {
	setDefault(pool, "rbd")
	setDefault(user, "admin")
	setDefault(keyring, "/etc/ceph/keyring")
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	if d != nil {
		setPointer(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setPointer(&d.Kind, corev1.AzureSharedBlobDisk)
		setPointer(&d.FSType, "ext4")
		setPointer(&d.ReadOnly, false)
	}
}

func defaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	setPointer(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(spec.Resources.Limits)
	roundUp(spec.Resources.Requests)
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
