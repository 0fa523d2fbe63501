package cgroup

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa/api/core"
)

// Config of a Manager. Root is required.
type Config struct {
	// Root is the cgroup below which everything is made, such as "/proa".
	Root string
	// Mount of the cgroups; default /sys/fs/cgroup.
	Mount string
	Log   *slog.Logger
}

// Manager keeps the cgroups of a node's pods. Limits that the kernel does not take are reported once and done without:
// what a container is limited to is the runtime's to say. Methods of a nil Manager do nothing, which is how nodes without
// processes of their own run. It is safe for concurrent use.
type Manager struct {
	tree *Tree
	log  *slog.Logger

	mu       sync.Mutex
	reported map[string]bool
	shares   uint64 // of the burstable class, as last written
}

// NewManager makes the fixed part of the tree.
func NewManager(config Config) (*Manager, error) {
	tree, err := New(config.Mount, config.Root)
	if err != nil {
		return nil, err
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{tree: tree, log: config.Log, reported: map[string]bool{}}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := tree.make(classPath(tree, class)); err != nil {
			return nil, err
		}
	}
	m.set(classPath(tree, corev1.PodQOSBestEffort), Settings{Shares: MinShares})
	return m, nil
}

// Tree below the manager.
func (m *Manager) Tree() *Tree {
	if m == nil {
		return nil
	}
	return m.tree
}

// Pod is the path of a pod's cgroup, the parent of those of its containers.
func (m *Manager) Pod(uid types.UID, class corev1.PodQOSClass) string {
	if m == nil {
		return ""
	}
	return m.tree.Path(uid, class)
}

// EnsurePod makes a pod's cgroup, sets it, and returns its path.
func (m *Manager) EnsurePod(pod *corev1.Pod) (parent string, err error) {
	if m == nil {
		return "", nil
	}
	path := m.tree.Path(pod.UID, core.QOSClass(pod))
	if err := m.tree.make(path); err != nil {
		return "", fmt.Errorf("cgroup of pod %s: %w", pod.UID, err)
	}
	m.set(path, PodSettings(pod))
	return path, nil
}

// RemovePod takes a pod's cgroup away. One that is not there is no error.
func (m *Manager) RemovePod(uid types.UID, class corev1.PodQOSClass) error {
	if m == nil {
		return nil
	}
	return m.tree.Remove(m.tree.Path(uid, class))
}

// UpdateQoS shares the CPU between the classes: burstable pods together weigh what they request.
func (m *Manager) UpdateQoS(pods []*corev1.Pod) {
	if m == nil {
		return
	}
	var milli int64
	for _, pod := range pods {
		if core.QOSClass(pod) == corev1.PodQOSBurstable {
			requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			milli += requests.Cpu().MilliValue()
		}
	}
	shares := Shares(milli)
	m.mu.Lock()
	changed := m.shares != shares
	m.shares = shares
	m.mu.Unlock()
	if changed {
		m.set(classPath(m.tree, corev1.PodQOSBurstable), Settings{Shares: shares})
	}
}

// Cleanup takes the whole tree away. It ends no process: cgroups that have some stay, and are reported.
func (m *Manager) Cleanup() error {
	if m == nil {
		return nil
	}
	return m.tree.Cleanup()
}

// classPath is the cgroup that a class's pods are in.
func classPath(t *Tree, class corev1.PodQOSClass) string {
	return filepath.Dir(t.Path("", class))
}

func (m *Manager) set(path string, s Settings) {
	m.tree.mu.Lock()
	errs := m.tree.write(path, s)
	m.tree.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, err := range errs {
		if !m.reported[err.file] {
			m.reported[err.file] = true
			m.log.Warn("cgroup limit not set", "cgroup", path, "file", err.file, "err", err.cause)
		}
	}
}
