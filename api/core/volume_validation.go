package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumes checks the volumes of a pod and returns them by name.
func (p *problems) volumes(spec *corev1.PodSpec, path *field.Path) map[string]*corev1.VolumeSource {
	byName := map[string]*corev1.VolumeSource{}
	claims := sets.New[string]()
	for i := range spec.Volumes {
		if c := spec.Volumes[i].PersistentVolumeClaim; c != nil {
			claims.Insert(c.ClaimName)
		}
	}
	for i := range spec.Volumes {
		v, at := &spec.Volumes[i], path.Index(i)
		before := len(p.list)
		p.volume(v, at)
		p.label(at.Child("name"), v.Name)
		if byName[v.Name] != nil {
			p.duplicate(at.Child("name"), v.Name)
		}
		if len(p.list) == before || v.Name != "" && byName[v.Name] == nil {
			byName[v.Name] = &v.VolumeSource
		}
	}
	return byName
}

// source is one of the kinds of volumes: whether it is asked for, and its check.
type source struct {
	name  string
	set   bool
	check func(path *field.Path)
}

// oneSource checks that exactly one kind of volume is asked for, and that one.
func (p *problems) oneSource(sources []source, path *field.Path) {
	n := 0
	for _, s := range sources {
		if !s.set {
			continue
		}
		n++
		if n > 1 {
			p.forbidden(path.Child(s.name), "may not specify more than 1 volume type")
			continue
		}
		if s.check != nil {
			s.check(path.Child(s.name))
		}
	}
	if n == 0 {
		p.required(path, "must specify a volume type")
	}
}

func (p *problems) volume(v *corev1.Volume, path *field.Path) {
	p.oneSource([]source{
		{"emptyDir", v.EmptyDir != nil, func(at *field.Path) { p.emptyDir(v.EmptyDir, at) }},
		{"hostPath", v.HostPath != nil, func(at *field.Path) { p.hostPath(v.HostPath, at) }},
		{"gitRepo", v.GitRepo != nil, func(at *field.Path) { p.gitRepo(v.GitRepo, at) }},
		{"gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) { p.gceDisk(v.GCEPersistentDisk, at) }},
		{"awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) { p.awsDisk(v.AWSElasticBlockStore, at) }},
		{"secret", v.Secret != nil, func(at *field.Path) { p.secretVolume(v.Secret, at) }},
		{"nfs", v.NFS != nil, func(at *field.Path) { p.nfs(v.NFS, at) }},
		{"iscsi", v.ISCSI != nil, func(at *field.Path) {
			s := v.ISCSI
			p.iscsi(s.TargetPortal, s.IQN, s.Lun, s.InitiatorName, at)
			if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
				p.required(at.Child("secretRef"), "")
			}
		}},
		{"glusterfs", v.Glusterfs != nil, func(at *field.Path) { p.glusterfs(v.Glusterfs.EndpointsName, v.Glusterfs.Path, at) }},
		{"flocker", v.Flocker != nil, func(at *field.Path) { p.flocker(v.Flocker, at) }},
		{"persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) {
			p.some(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
		}},
		{"rbd", v.RBD != nil, func(at *field.Path) { p.rbd(v.RBD.CephMonitors, v.RBD.RBDImage, at) }},
		{"cinder", v.Cinder != nil, func(at *field.Path) {
			p.some(at.Child("volumeID"), v.Cinder.VolumeID)
			if v.Cinder.SecretRef != nil {
				p.some(at.Child("secretRef", "name"), v.Cinder.SecretRef.Name)
			}
		}},
		{"cephfs", v.CephFS != nil, func(at *field.Path) { p.monitors(v.CephFS.Monitors, at) }},
		{"quobyte", v.Quobyte != nil, func(at *field.Path) { p.quobyte(v.Quobyte, at) }},
		{"downwardAPI", v.DownwardAPI != nil, func(at *field.Path) {
			p.mode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
			p.downwardFiles(v.DownwardAPI.Items, at.Child("items"))
		}},
		{"fc", v.FC != nil, func(at *field.Path) { p.fibreChannel(v.FC, at) }},
		{"flexVolume", v.FlexVolume != nil, func(at *field.Path) { p.flexVolume(v.FlexVolume.Driver, v.FlexVolume.Options, at) }},
		{"configMap", v.ConfigMap != nil, func(at *field.Path) {
			p.some(at.Child("name"), v.ConfigMap.Name)
			p.mode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))
			p.keysToPaths(v.ConfigMap.Items, at.Child("items"))
		}},
		{"azureFile", v.AzureFile != nil, func(at *field.Path) { p.azureFile(v.AzureFile.SecretName, v.AzureFile.ShareName, at) }},
		{"vsphereVolume", v.VsphereVolume != nil, func(at *field.Path) { p.some(at.Child("volumePath"), v.VsphereVolume.VolumePath) }},
		{"photonPersistentDisk", v.PhotonPersistentDisk != nil, func(at *field.Path) { p.some(at.Child("pdID"), v.PhotonPersistentDisk.PdID) }},
		{"portworxVolume", v.PortworxVolume != nil, func(at *field.Path) { p.some(at.Child("volumeID"), v.PortworxVolume.VolumeID) }},
		{"azureDisk", v.AzureDisk != nil, func(at *field.Path) { p.azureDisk(v.AzureDisk, at) }},
		{"storageos", v.StorageOS != nil, func(at *field.Path) {
			var secret *string
			if v.StorageOS.SecretRef != nil {
				secret = &v.StorageOS.SecretRef.Name
			}
			p.storageOS(v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace, secret, at)
		}},
		{"projected", v.Projected != nil, func(at *field.Path) { p.projected(v.Projected, at) }},
		{"scaleIO", v.ScaleIO != nil, func(at *field.Path) { p.scaleIO(v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName, at) }},
		{"csi", v.CSI != nil, func(at *field.Path) {
			p.csiDriver(v.CSI.Driver, at.Child("driver"))
			if v.CSI.NodePublishSecretRef != nil {
				p.some(at.Child("nodePublishSecretRef", "name"), v.CSI.NodePublishSecretRef.Name)
			}
		}},
		{"ephemeral", v.Ephemeral != nil, func(at *field.Path) { p.ephemeralVolume(v.Ephemeral, at) }},
		{"image", v.Image != nil, func(at *field.Path) {
			p.some(at.Child("reference"), v.Image.Reference)
			oneOf(p, at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
		}},
	}, path)
}

func (p *problems) emptyDir(e *corev1.EmptyDirVolumeSource, path *field.Path) {
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		p.forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func (p *problems) hostPath(h *corev1.HostPathVolumeSource, path *field.Path) {
	if !p.some(path.Child("path"), h.Path) {
		return
	}
	p.noBacksteps(path.Child("path"), h.Path)
	if h.Type != nil && *h.Type != corev1.HostPathUnset {
		optional(p, path.Child("type"), h.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	}
}

func (p *problems) gitRepo(g *corev1.GitRepoVolumeSource, path *field.Path) {
	p.some(path.Child("repository"), g.Repository)
	p.descending(path.Child("directory"), g.Directory)
}

func (p *problems) secretVolume(s *corev1.SecretVolumeSource, path *field.Path) {
	p.some(path.Child("secretName"), s.SecretName)
	p.mode(s.DefaultMode, path.Child("defaultMode"))
	p.keysToPaths(s.Items, path.Child("items"))
}

func (p *problems) mode(mode *int32, path *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		p.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (p *problems) keysToPaths(items []corev1.KeyToPath, path *field.Path) {
	for i, item := range items {
		at := path.Index(i)
		p.some(at.Child("key"), item.Key)
		if p.some(at.Child("path"), item.Path) {
			p.filePath(item.Path, at.Child("path"))
		}
		p.mode(item.Mode, at.Child("mode"))
	}
}

// filePath checks a path inside a volume; names that begin with two dots are the volume's own.
func (p *problems) filePath(value string, path *field.Path) {
	p.descending(path, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") && value != ".." {
		p.invalid(path, value, "must not start with '..'")
	}
}

func (p *problems) downwardFiles(files []corev1.DownwardAPIVolumeFile, path *field.Path) {
	for i, f := range files {
		at := path.Index(i)
		if p.some(at.Child("path"), f.Path) {
			p.filePath(f.Path, at.Child("path"))
		}
		switch {
		case f.FieldRef != nil:
			p.fieldRef(f.FieldRef, volumeFields(), at.Child("fieldRef"))
			if f.ResourceFieldRef != nil {
				p.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
			}
		case f.ResourceFieldRef != nil:
			p.resourceFieldRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))
		default:
			p.required(at, "one of fieldRef and resourceFieldRef is required")
		}
		p.mode(f.Mode, at.Child("mode"))
	}
}

func (p *problems) projected(v *corev1.ProjectedVolumeSource, path *field.Path) {
	p.mode(v.DefaultMode, path.Child("defaultMode"))
	paths := sets.New[string]()
	take := func(at *field.Path, name string) {
		if name != "" && paths.Has(name) {
			p.invalid(at, name, "conflicting duplicate paths")
		}
		paths.Insert(name)
	}
	for i := range v.Sources {
		p.projection(&v.Sources[i], take, path.Child("sources").Index(i))
	}
}

func (p *problems) projection(s *corev1.VolumeProjection, take func(*field.Path, string), path *field.Path) {
	n := 0
	begin := func(name string, set bool) bool {
		if set {
			n++
			if n > 1 {
				p.forbidden(path.Child(name), "may not specify more than 1 volume type")
			}
		}
		return set && n == 1
	}
	items := func(keys []corev1.KeyToPath, at *field.Path) {
		p.keysToPaths(keys, at.Child("items"))
		for j, k := range keys {
			take(at.Child("items").Index(j).Child("path"), k.Path)
		}
	}
	if at := path.Child("secret"); begin("secret", s.Secret != nil) {
		p.some(at.Child("name"), s.Secret.Name)
		items(s.Secret.Items, at)
	}
	if at := path.Child("configMap"); begin("configMap", s.ConfigMap != nil) {
		p.some(at.Child("name"), s.ConfigMap.Name)
		items(s.ConfigMap.Items, at)
	}
	if at := path.Child("downwardAPI"); begin("downwardAPI", s.DownwardAPI != nil) {
		p.downwardFiles(s.DownwardAPI.Items, at.Child("items"))
		for j, f := range s.DownwardAPI.Items {
			take(at.Child("items").Index(j).Child("path"), f.Path)
		}
	}
	if begin("serviceAccountToken", s.ServiceAccountToken != nil) {
		p.tokenProjection(s.ServiceAccountToken, take, path.Child("serviceAccountToken"))
	}
	if begin("clusterTrustBundle", s.ClusterTrustBundle != nil) {
		p.trustProjection(s.ClusterTrustBundle, take, path.Child("clusterTrustBundle"))
	}
	if n == 0 {
		p.required(path, "must specify a volume type")
	}
}

func (p *problems) tokenProjection(t *corev1.ServiceAccountTokenProjection, take func(*field.Path, string), path *field.Path) {
	if p.some(path.Child("path"), t.Path) {
		p.filePath(t.Path, path.Child("path"))
		take(path.Child("path"), t.Path)
	}
	if s := t.ExpirationSeconds; s != nil {
		if *s < 10*60 {
			p.invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes")
		}
		if *s > 1<<32 {
			p.invalid(path.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func (p *problems) trustProjection(t *corev1.ClusterTrustBundleProjection, take func(*field.Path, string), path *field.Path) {
	switch {
	case t.Name != nil && (t.SignerName != nil || t.LabelSelector != nil):
		p.invalid(path, "", "only one of name and signerName may be used")
	case t.Name == nil && t.SignerName == nil:
		p.required(path, "either name or signerName must be specified")
	case t.Name != nil:
		p.some(path.Child("name"), *t.Name)
	default:
		p.selector(path.Child("labelSelector"), t.LabelSelector)
	}
	if p.some(path.Child("path"), t.Path) {
		p.filePath(t.Path, path.Child("path"))
		take(path.Child("path"), t.Path)
	}
}

func (p *problems) ephemeralVolume(e *corev1.EphemeralVolumeSource, path *field.Path) {
	at := path.Child("volumeClaimTemplate")
	if e.VolumeClaimTemplate == nil {
		p.required(at, "")
		return
	}
	p.all(ValidateClaimTemplate(e.VolumeClaimTemplate, at))
}

func (p *problems) csiDriver(name string, path *field.Path) {
	if name == "" {
		p.required(path, "")
		return
	}
	if len(name) > 63 {
		p.list = append(p.list, field.TooLong(path, name, 63))
	}
	p.messages(path, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))
}

func (p *problems) azureDisk(d *corev1.AzureDiskVolumeSource, path *field.Path) {
	p.some(path.Child("diskName"), d.DiskName)
	p.some(path.Child("diskURI"), d.DataDiskURI)
	optional(p, path.Child("cachingMode"), d.CachingMode,
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	optional(p, path.Child("kind"), d.Kind, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
	if d.Kind == nil {
		return
	}
	managed := *d.Kind == corev1.AzureManagedDisk
	switch {
	case managed && !strings.HasPrefix(d.DataDiskURI, "/subscriptions/"):
		p.list = append(p.list, field.NotSupported(path.Child("diskURI"), d.DataDiskURI,
			[]string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}))
	case !managed && !strings.HasPrefix(d.DataDiskURI, "https://"):
		p.list = append(p.list, field.NotSupported(path.Child("diskURI"), d.DataDiskURI,
			[]string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}))
	}
}
