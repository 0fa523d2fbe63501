package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

// claim finds the storage of a claim once; what a pod got does not change under it.
func (m *Manager) claim(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (Source, error) {
	if made, ok := m.Path(pod.UID, v.Name); ok {
		return made, nil
	}
	name, readOnly := pod.Name+"-"+v.Name, false
	if source := v.PersistentVolumeClaim; source != nil {
		name, readOnly = source.ClaimName, source.ReadOnly
	}
	pv, err := m.boundVolume(ctx, pod, name, v.Ephemeral != nil)
	if err != nil {
		return Source{}, &unprocessed{v.Name, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)}
	}
	var made Source
	switch source := &pv.Spec.PersistentVolumeSource; {
	case source.HostPath != nil:
		made, err = hostPath(source.HostPath)
	case source.Local != nil:
		made, err = local(pod, pv, readOnly)
	default:
		return Source{}, noPlugin(v.Name, pv.Name)
	}
	made.ReadOnly = readOnly
	return made, err
}

func (m *Manager) boundVolume(ctx context.Context, pod *corev1.Pod, name string, owned bool) (*corev1.PersistentVolume, error) {
	claim, err := client.For[*corev1.PersistentVolumeClaim](m.config.Client).Get(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	switch {
	case owned && !metav1.IsControlledBy(claim, pod):
		return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	case claim.DeletionTimestamp != nil:
		return nil, errors.New("PVC is being deleted")
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return nil, errors.New("PVC is not bound")
	}
	pv, err := client.For[*corev1.PersistentVolume](m.config.Client).Get(ctx, "", claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	}
	if pv.Spec.ClaimRef == nil {
		return nil, fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	}
	if pv.Spec.ClaimRef.UID != claim.UID {
		return nil, fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, claim.UID)
	}
	return pv, nil
}

func local(pod *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool) (Source, error) {
	path := pv.Spec.Local.Path
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, fmt.Errorf("path %q does not exist", path)
	}
	if err != nil {
		return Source{}, err
	}
	if mode := pv.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		if info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0 {
			return Source{}, fmt.Errorf("%s is not a block device", path)
		}
		return Source{Path: path}, nil
	}
	if !info.IsDir() {
		return Source{}, fmt.Errorf("local volumes of mode Filesystem must be directories, and %s is not", path)
	}
	if group := fsGroup(pod); group != nil && !readOnly {
		policy := pod.Spec.SecurityContext.FSGroupChangePolicy
		if err := giveToGroup(path, *group, policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch); err != nil {
			return Source{}, err
		}
	}
	return Source{Path: path}, nil
}

// giveToGroup makes a tree readable and writable for a group, and new files in it the group's. With onlyIfNeeded a root
// that looks like that already stands for the whole tree.
func giveToGroup(root string, group int64, onlyIfNeeded bool) error {
	if onlyIfNeeded {
		info, err := os.Stat(root)
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		if int64(stat.Gid) == group && info.Mode()&os.ModeSetgid != 0 && info.Mode()&0o770 == 0o770&(info.Mode()|0o070) {
			return nil
		}
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(group)); err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSticky) | 0o660
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		return os.Chmod(path, mode)
	})
}
