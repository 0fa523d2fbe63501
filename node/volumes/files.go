package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa/client"
)

// file is the content of one file of a volume.
type file struct {
	data []byte
	mode fs.FileMode
	uid  int // -1: root
}

// files makes a volume of files from sources. They are replaced all at once: programs see the old or the new ones.
func (m *Manager) files(ctx context.Context, pod *corev1.Pod, volume, kind string, defaultMode *int32, sources []corev1.VolumeProjection) (Source, error) {
	dir := m.dir(pod, kind, volume)
	mode := fs.FileMode(0o644)
	if defaultMode != nil {
		mode = fs.FileMode(*defaultMode)
	}
	content := map[string]file{}
	for i := range sources {
		if err := m.collect(ctx, pod, volume, &sources[i], mode, content); err != nil {
			return Source{}, err
		}
	}
	if _, err := makeDir(dir); err != nil {
		return Source{}, err
	}
	// Secrets and tokens stay in memory, as do the others of their kind.
	mounted, err := isMountPoint(dir)
	if err != nil {
		return Source{}, err
	}
	if !mounted && (kind == "secret" || kind == "projected") {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, memoryOptions(pod, &corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})); err != nil && !errors.Is(err, unix.EPERM) {
			return Source{}, fmt.Errorf("mount tmpfs: %w", err)
		}
	}
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		return Source{}, err
	}
	gid := -1
	if g := fsGroup(pod); g != nil {
		gid = int(*g)
	}
	return Source{Path: dir, ReadOnly: true, Relabel: true}, replace(dir, content, gid)
}

// collect adds what one source contributes.
func (m *Manager) collect(ctx context.Context, pod *corev1.Pod, volume string, p *corev1.VolumeProjection, mode fs.FileMode, content map[string]file) error {
	switch {
	case p.ConfigMap != nil:
		cm, err := m.config.Sources.ConfigMap(ctx, pod.UID, pod.Namespace, p.ConfigMap.Name)
		if err != nil {
			if isOptional(p.ConfigMap.Optional) && apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		data := map[string][]byte{}
		for k, v := range cm.Data {
			data[k] = []byte(v)
		}
		for k, v := range cm.BinaryData {
			data[k] = v
		}
		return pick(data, p.ConfigMap.Items, isOptional(p.ConfigMap.Optional), mode, content, "configmap")
	case p.Secret != nil:
		secret, err := m.config.Sources.Secret(ctx, pod.UID, pod.Namespace, p.Secret.Name)
		if err != nil {
			if isOptional(p.Secret.Optional) && apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		return pick(secret.Data, p.Secret.Items, isOptional(p.Secret.Optional), mode, content, "secret")
	case p.DownwardAPI != nil:
		for i := range p.DownwardAPI.Items {
			item := &p.DownwardAPI.Items[i]
			text, err := m.config.Fields(pod, item)
			if err != nil {
				return err
			}
			content[filepath.Clean(item.Path)] = file{[]byte(text), itemMode(item.Mode, mode), -1}
		}
	case p.ServiceAccountToken != nil:
		text, err := m.token(ctx, pod, volume, p.ServiceAccountToken)
		if err != nil {
			return err
		}
		f := file{[]byte(text), 0o600, -1}
		// The file is its only user's, or the group's, which may read it whatever its mode; with neither anyone may.
		user, same := onlyUser(pod)
		if same {
			f.uid = user
		} else if fsGroup(pod) == nil {
			f.mode = mode
		}
		content[filepath.Clean(p.ServiceAccountToken.Path)] = f
	case p.ClusterTrustBundle != nil:
		data, err := m.trustBundle(ctx, p.ClusterTrustBundle)
		if err != nil {
			return err
		}
		content[filepath.Clean(p.ClusterTrustBundle.Path)] = file{data, mode, -1}
	}
	return nil
}

func isOptional(b *bool) bool { return b != nil && *b }

func itemMode(own *int32, otherwise fs.FileMode) fs.FileMode {
	if own != nil {
		return fs.FileMode(*own)
	}
	return otherwise
}

// pick takes all keys, or the items asked for.
func pick(data map[string][]byte, items []corev1.KeyToPath, optional bool, mode fs.FileMode, content map[string]file, kind string) error {
	if len(items) == 0 {
		for k, v := range data {
			content[k] = file{v, mode, -1}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			if kind == "secret" {
				return fmt.Errorf("references non-existent secret key: %s", item.Key)
			}
			return fmt.Errorf("configmap references non-existent config key: %s", item.Key)
		}
		content[filepath.Clean(item.Path)] = file{v, itemMode(item.Mode, mode), -1}
	}
	return nil
}

// onlyUser is the user as whom all containers of a pod run, if there is one.
func onlyUser(pod *corev1.Pod) (int, bool) {
	var user *int64
	if pod.Spec.SecurityContext != nil {
		user = pod.Spec.SecurityContext.RunAsUser
	}
	found, first := int64(0), true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		u := user
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			u = c.SecurityContext.RunAsUser
		}
		if u == nil || !first && *u != found {
			return 0, false
		}
		found, first = *u, false
	}
	return int(found), !first
}

// trustBundle joins the certificates that a projection selects.
func (m *Manager) trustBundle(ctx context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	bundles := client.For[*certificatesv1alpha1.ClusterTrustBundle](m.config.Client)
	var out bytes.Buffer
	if p.Name != nil {
		b, err := bundles.Get(ctx, "", *p.Name)
		if err != nil {
			if isOptional(p.Optional) && apierrors.IsNotFound(err) {
				return nil, nil
			}
			return nil, err
		}
		return []byte(b.Spec.TrustBundle), nil
	}
	selector := labels.Nothing()
	if p.LabelSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
		if err != nil {
			return nil, err
		}
		selector = s
	}
	all, err := bundles.List(ctx, "", metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if p.SignerName != nil && b.Spec.SignerName == *p.SignerName && selector.Matches(labels.Set(b.Labels)) {
			out.WriteString(strings.TrimRight(b.Spec.TrustBundle, "\n") + "\n")
		}
	}
	if out.Len() == 0 && !isOptional(p.Optional) {
		return nil, fmt.Errorf("combination of signerName %q and labelSelector matched no trust bundles", *p.SignerName)
	}
	return out.Bytes(), nil
}

// Names within a volume of files: the files are links through ..data, which points to the present version.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// replace makes dir hold exactly the content, by one rename, unless it does already.
func replace(dir string, content map[string]file, gid int) error {
	present, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if present != "" && same(filepath.Join(dir, present), content) {
		return link(dir, content) // should a crash have come between
	}
	version, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	if err := os.Chmod(version, 0o755); err != nil {
		return err
	}
	for path, f := range content {
		if err := write(filepath.Join(version, path), f, gid); err != nil {
			return errors.Join(err, os.RemoveAll(version))
		}
	}
	if gid >= 0 {
		if err := os.Chown(version, -1, gid); err != nil {
			return err
		}
	}
	tmp := filepath.Join(dir, newDataLink)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(version), tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := link(dir, content); err != nil {
		return err
	}
	return removeOld(dir, filepath.Base(version))
}

// removeOld removes all versions but one, those that a crash left half made included.
func removeOld(dir, version string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != version {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// link makes the names that users see, and removes those that are no longer there.
func link(dir string, content map[string]file) error {
	wanted := map[string]bool{}
	for path := range content {
		top, _, _ := strings.Cut(path, "/")
		if wanted[top] {
			continue
		}
		wanted[top] = true
		name := filepath.Join(dir, top)
		if _, err := os.Lstat(name); err == nil {
			continue
		}
		if err := os.Symlink(filepath.Join(dataLink, top), name); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") && !wanted[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(path string, f file, gid int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, f.data, 0o600); err != nil {
		return err
	}
	mode := f.mode
	if gid >= 0 {
		mode |= 0o440
	}
	if gid >= 0 || f.uid >= 0 {
		if err := os.Chown(path, f.uid, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// same reports whether a version holds exactly the content.
func same(version string, content map[string]file) bool {
	n := 0
	err := filepath.WalkDir(version, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(version, path)
		if err != nil {
			return err
		}
		want, ok := content[rel]
		if !ok {
			return fs.ErrExist
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, want.data) {
			return fs.ErrExist
		}
		n++
		return nil
	})
	return err == nil && n == len(content)
}
