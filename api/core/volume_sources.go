package core

import (
	"net/netip"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What follows are kinds of volumes that pods and persistent volumes have in common.

func (p *problems) partition(partition int32, at *field.Path) {
	if partition < 0 || partition > 255 {
		p.invalid(at.Child("partition"), partition, utilvalidation.InclusiveRangeError(0, 255))
	}
}

func (p *problems) gceDisk(d *corev1.GCEPersistentDiskVolumeSource, at *field.Path) {
	p.some(at.Child("pdName"), d.PDName)
	p.partition(d.Partition, at)
}

func (p *problems) awsDisk(d *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) {
	p.some(at.Child("volumeID"), d.VolumeID)
	p.partition(d.Partition, at)
}

func (p *problems) nfs(n *corev1.NFSVolumeSource, at *field.Path) {
	p.some(at.Child("server"), n.Server)
	p.some(at.Child("path"), n.Path)
	if !path.IsAbs(n.Path) {
		p.invalid(at.Child("path"), n.Path, "must be an absolute path")
	}
}

func (p *problems) iscsi(portal, iqn string, lun int32, initiator *string, at *field.Path) {
	p.some(at.Child("targetPortal"), portal)
	if p.some(at.Child("iqn"), iqn) {
		p.iqn(iqn, at.Child("iqn"))
	}
	if lun < 0 || lun > 255 {
		p.invalid(at.Child("lun"), lun, utilvalidation.InclusiveRangeError(0, 255))
	}
	if initiator != nil {
		p.iqn(*initiator, at.Child("initiatorname"))
	}
}

const iqnPattern = `^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$|^eui\.[[:alnum:]]{16}$|^naa\.[[:alnum:]]{32}$`

func (p *problems) iqn(name string, at *field.Path) {
	if ok, err := regexp.MatchString(iqnPattern, name); err != nil || !ok {
		p.invalid(at, name, "must be valid format")
	}
}

func (p *problems) glusterfs(endpoints, volume string, at *field.Path) {
	p.some(at.Child("endpoints"), endpoints)
	p.some(at.Child("path"), volume)
}

func (p *problems) flocker(f *corev1.FlockerVolumeSource, at *field.Path) {
	switch {
	case f.DatasetName == "" && f.DatasetUUID == "":
		p.required(at, "one of datasetName and datasetUUID is required")
	case f.DatasetName != "" && f.DatasetUUID != "":
		p.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	case strings.Contains(f.DatasetName, "/"):
		p.invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'")
	}
}

func (p *problems) monitors(monitors []string, at *field.Path) {
	if len(monitors) == 0 {
		p.required(at.Child("monitors"), "")
	}
}

func (p *problems) rbd(monitors []string, image string, at *field.Path) {
	p.monitors(monitors, at)
	p.some(at.Child("image"), image)
}

func (p *problems) quobyte(q *corev1.QuobyteVolumeSource, at *field.Path) {
	if q.Registry == "" {
		p.required(at.Child("registry"), "must be a host:port pair or multiple pairs separated by commas")
	} else if len(q.Tenant) >= 65 {
		p.required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	} else {
		for _, host := range strings.Split(q.Registry, ",") {
			if _, _, ok := strings.Cut(host, ":"); !ok {
				if _, err := netip.ParseAddrPort(host); err != nil {
					p.invalid(at.Child("registry"), q.Registry, "must be a host:port pair or multiple pairs separated by commas")
				}
			}
		}
	}
	p.some(at.Child("volume"), q.Volume)
}

func (p *problems) fibreChannel(f *corev1.FCVolumeSource, at *field.Path) {
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		p.required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	case len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0:
		p.invalid(at.Child("targetWWNs"), f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	case len(f.TargetWWNs) > 0 && f.Lun == nil:
		p.required(at.Child("lun"), "lun is required if targetWWNs is specified")
	case len(f.TargetWWNs) > 0 && (*f.Lun < 0 || *f.Lun > 255):
		p.invalid(at.Child("lun"), f.Lun, utilvalidation.InclusiveRangeError(0, 255))
	}
}

func (p *problems) flexVolume(driver string, options map[string]string, at *field.Path) {
	p.some(at.Child("driver"), driver)
	for k := range options {
		namespace, _, _ := strings.Cut(k, "/")
		if lower := strings.ToLower(namespace); lower == "kubernetes.io" || strings.HasSuffix(lower, ".kubernetes.io") ||
			lower == "k8s.io" || strings.HasSuffix(lower, ".k8s.io") {
			p.invalid(at.Child("options").Key(k), k, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func (p *problems) azureFile(secret, share string, at *field.Path) {
	p.some(at.Child("secretName"), secret)
	p.some(at.Child("shareName"), share)
}

func (p *problems) storageOS(volume, namespace string, secret *string, at *field.Path) {
	p.label(at.Child("volumeName"), volume)
	if namespace != "" {
		p.messages(at.Child("volumeNamespace"), namespace, utilvalidation.IsDNS1123Label(namespace))
	}
	if secret != nil {
		p.some(at.Child("secretRef", "name"), *secret)
	}
}

func (p *problems) scaleIO(gateway, system, volume string, at *field.Path) {
	p.some(at.Child("gateway"), gateway)
	p.some(at.Child("system"), system)
	p.some(at.Child("volumeName"), volume)
}
