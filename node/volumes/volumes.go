// Package volumes makes the volumes of pods on a node: folders, memory, files made of ConfigMaps, Secrets, the pod's own
// fields and tokens, and places of the host. Everything of a pod lies below RootDir/pods/<uid>; making a volume again changes
// only what has changed. Errors read as users know them from FailedMount events.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/client"
)

// Sources reads ConfigMaps and Secrets on behalf of a pod.
type Sources interface {
	ConfigMap(ctx context.Context, pod types.UID, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, pod types.UID, namespace, name string) (*corev1.Secret, error)
}

// Config of a manager. RootDir, Client, Sources and Fields are required.
type Config struct {
	RootDir string
	Node    string
	Client  client.Interface
	Sources Sources
	Log     *slog.Logger
	// Fields gives the text of a downward API file.
	Fields func(pod *corev1.Pod, file *corev1.DownwardAPIVolumeFile) (string, error)
	// Changed asks for Setup of a pod to be called again after a while, because a token has to be renewed.
	Changed func(pod types.UID, after time.Duration)
}

// Source is where a volume is on the host.
type Source struct {
	Path     string
	ReadOnly bool
	// Relabel says that the volume belongs to the pod alone and may get its SELinux label.
	Relabel bool
}

// Manager makes volumes. Use New. Calls for different pods may run at the same time.
type Manager struct {
	config Config

	mu     sync.Mutex
	paths  map[types.UID]map[string]Source
	tokens map[tokenKey]token
}

// New returns a manager.
func New(c Config) *Manager {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{config: c, paths: map[types.UID]map[string]Source{}, tokens: map[tokenKey]token{}}
}

// podDir is the pod's folder.
func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.config.RootDir, "pods", string(uid))
}

// dir is where a volume of a type lies.
func (m *Manager) dir(pod *corev1.Pod, kind, name string) string {
	return filepath.Join(m.podDir(pod.UID), "volumes", "kubernetes.io~"+kind, name)
}

// Setup makes all volumes of a pod, or brings them up to date. The error is that of the first volume that cannot be made.
func (m *Manager) Setup(ctx context.Context, pod *corev1.Pod) error {
	paths := map[string]Source{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		source, err := m.setup(ctx, pod, v)
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		paths[v.Name] = source
	}
	m.mu.Lock()
	m.paths[pod.UID] = paths
	m.mu.Unlock()
	return nil
}

func (m *Manager) setup(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (Source, error) {
	switch {
	case v.EmptyDir != nil:
		return m.emptyDir(pod, v)
	case v.HostPath != nil:
		return hostPath(v.HostPath)
	case v.ConfigMap != nil:
		return m.files(ctx, pod, v.Name, "configmap", v.ConfigMap.DefaultMode, []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}}})
	case v.Secret != nil:
		return m.files(ctx, pod, v.Name, "secret", v.Secret.DefaultMode, []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}}})
	case v.DownwardAPI != nil:
		return m.files(ctx, pod, v.Name, "downward-api", v.DownwardAPI.DefaultMode, []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}})
	case v.Projected != nil:
		return m.files(ctx, pod, v.Name, "projected", v.Projected.DefaultMode, v.Projected.Sources)
	case v.PersistentVolumeClaim != nil:
		return m.claim(ctx, pod, v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly)
	case v.Ephemeral != nil:
		return m.claim(ctx, pod, pod.Name+"-"+v.Name, false)
	}
	return Source{}, errors.New("this kind of volume is not supported by the node")
}

// Path returns where a volume of a pod is, once Setup has made it.
func (m *Manager) Path(pod types.UID, name string) (Source, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.paths[pod][name]
	return s, ok
}

// TearDown unmounts and removes everything of a pod. It never removes what is behind a mount.
func (m *Manager) TearDown(_ context.Context, pod types.UID) error {
	m.mu.Lock()
	delete(m.paths, pod)
	for key := range m.tokens {
		if key.pod == pod {
			delete(m.tokens, key)
		}
	}
	m.mu.Unlock()
	dir := m.podDir(pod)
	for _, sub := range []string{"volume-subpaths", "volumes"} {
		below := filepath.Join(dir, sub)
		if err := unmountBelow(below); err != nil {
			return err
		}
		if err := os.RemoveAll(below); err != nil {
			return err
		}
	}
	return nil
}

// unmountBelow unmounts every mount below dir, the deepest first, and fails if one stays.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(points) - 1; i >= 0; i-- {
		if err := unix.Unmount(points[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", points[i], err)
		}
	}
	return nil
}

// mountsBelow lists mount points in or below dir, in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			p := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
			if p == dir || strings.HasPrefix(p, dir+"/") {
				points = append(points, p)
			}
		}
	}
	return points, nil
}

func isMountPoint(path string) (bool, error) {
	points, err := mountsBelow(path)
	if err != nil {
		return false, err
	}
	for _, p := range points {
		if p == path {
			return true, nil
		}
	}
	return false, nil
}

// fsGroup is the group that owns the pod's volumes, if it asks for one.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
