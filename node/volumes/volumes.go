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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/client"
	"proa/internal/mounts"
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

	shareMu sync.Mutex // taken alone

	mu     sync.Mutex
	paths  map[types.UID]map[string]Source
	tokens map[tokenKey]token
}

// New returns a manager.
func New(c Config) *Manager {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func(types.UID, time.Duration) {}
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

// Setup makes the volumes that the pod's containers use, or brings them up to date. The error joins those of the volumes
// that could not be made, each on a line of its own.
func (m *Manager) Setup(ctx context.Context, pod *corev1.Pod) error {
	used, bidirectional := uses(pod)
	if bidirectional {
		if err := m.share(); err != nil {
			return err
		}
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		source, err := m.setup(ctx, pod, v)
		if err != nil {
			// The others are made all the same: tokens must be renewed although a ConfigMap is gone.
			if _, whole := errors.AsType[*unprocessed](err); !whole {
				err = fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
			}
			errs = append(errs, err)
			continue
		}
		m.mu.Lock()
		if m.paths[pod.UID] == nil {
			m.paths[pod.UID] = map[string]Source{}
		}
		m.paths[pod.UID][v.Name] = source
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// uses returns the names of the volumes that containers mount, and whether one of them passes its mounts on to the host.
func uses(pod *corev1.Pod) (names map[string]bool, bidirectional bool) {
	names = map[string]bool{}
	add := func(mounts []corev1.VolumeMount, devices []corev1.VolumeDevice) {
		for _, m := range mounts {
			names[m.Name] = true
			bidirectional = bidirectional || m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional
		}
		for _, d := range devices {
			names[d.Name] = true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts, list[i].VolumeDevices)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices)
	}
	return names, bidirectional
}

func (m *Manager) share() error {
	m.shareMu.Lock()
	defer m.shareMu.Unlock()
	if err := shareRoot(m.config.RootDir); err != nil {
		return fmt.Errorf("share the volumes' mounts with the host: %w", err)
	}
	return nil
}

// unprocessed is the error of a volume that nobody can try to make.
type unprocessed struct {
	volume string
	cause  error
}

func (e *unprocessed) Error() string {
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%s]: %v", e.volume, e.volume, e.cause)
}

func (e *unprocessed) Unwrap() error { return e.cause }

func noPlugin(name, volume string) error {
	return &unprocessed{name, fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched", volume)}
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
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return m.claim(ctx, pod, v)
	case v.Image != nil:
		return Source{}, errors.New("image volumes are not supported by this runtime")
	}
	return Source{}, noPlugin(v.Name, v.Name)
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
		if err := mounts.RemoveAll(filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// Known returns the pods that have a folder below the root.
func (m *Manager) Known() []types.UID {
	entries, _ := os.ReadDir(filepath.Join(m.config.RootDir, "pods")) // no folder is no pods
	var out []types.UID
	for _, e := range entries {
		out = append(out, types.UID(e.Name()))
	}
	return out
}

// fsGroup is the group that owns the pod's volumes, if it asks for one.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
