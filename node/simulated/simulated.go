// Package simulated is a runtime.Runtime whose containers exist in memory only, for hollow nodes and tests. Sandboxes get
// addresses of a given range, containers run forever or end as annotations of their pod say, and whatever changes is
// reported as an event. A thousand of them fit into one process: a runtime without pods has no goroutine and no timer, a
// running container is one small struct.
package simulated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// Annotations of a pod's sandbox or of a single container that say how its containers behave; a container's own win. A
// key may end in "/" and a container's name, and is then for that container alone.
const (
	// AnnotationExitAfter ends a container by itself after this duration. Without it containers run until stopped.
	AnnotationExitAfter = "simulated.proa/exit-after"
	// AnnotationExitCode is the code of that end; default 0.
	AnnotationExitCode = "simulated.proa/exit-code"
	// AnnotationStopAfter is how long a container takes to end after the stop signal; default none at all. A container
	// that takes longer than its grace period is killed and ends with 137.
	AnnotationStopAfter = "simulated.proa/stop-after"
	// AnnotationStartAfter is how long starting a container takes.
	AnnotationStartAfter = "simulated.proa/start-after"
)

// Config of a simulated runtime. The zero value is usable.
type Config struct {
	// PodCIDRs are where sandboxes' addresses come from, at most one of each family; SetPodCIDRs changes them. Without
	// any, sandboxes have no address.
	PodCIDRs []netip.Prefix
	// Exec answers commands run in containers, for probes and hooks; default: they succeed without output.
	Exec func(container *v1.ContainerStatus, command []string) (stdout, stderr []byte, exitCode int32, err error)
	// Fault may make a call fail, before it does anything. call is the method's name, subject the name of the pod or
	// container or the image.
	Fault func(call, subject string) error
}

// Runtime is a simulated container runtime. Use New. It is safe for concurrent use.
type Runtime struct {
	config Config

	mu          sync.Mutex
	addresses   []pool
	sandboxes   map[string]*sandbox
	containers  map[string]*container
	images      map[string]*v1.Image
	subscribers map[*subscriber]struct{}
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns a runtime in which nothing runs.
func New(config Config) *Runtime {
	r := &Runtime{
		config:      config,
		sandboxes:   map[string]*sandbox{},
		containers:  map[string]*container{},
		images:      map[string]*v1.Image{},
		subscribers: map[*subscriber]struct{}{},
	}
	r.SetPodCIDRs(config.PodCIDRs...)
	return r
}

// SetPodCIDRs gives the ranges of addresses for sandboxes started from now on.
func (r *Runtime) SetPodCIDRs(prefixes ...netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.EqualFunc(r.addresses, prefixes, func(p pool, prefix netip.Prefix) bool { return p.prefix == prefix.Masked() }) {
		return
	}
	r.addresses = nil
	for _, prefix := range prefixes {
		r.addresses = append(r.addresses, newPool(prefix))
	}
}

// Version implements runtime.Runtime.
func (r *Runtime) Version(context.Context) (*v1.VersionResponse, error) {
	return &v1.VersionResponse{Version: "0.1.0", RuntimeName: "simulated", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status implements runtime.Runtime.
func (r *Runtime) Status(context.Context) (*v1.RuntimeStatus, error) {
	if err := r.fault("Status", ""); err != nil {
		return nil, err
	}
	return &v1.RuntimeStatus{Conditions: []*v1.RuntimeCondition{
		{Type: v1.RuntimeReady, Status: true},
		{Type: v1.NetworkReady, Status: true},
	}}, nil
}

// Exit ends a running container by itself, as a program that returns the code does.
func (r *Runtime) Exit(id string, code int32) error {
	return r.end(id, code, exitReason(code))
}

// OOMKill ends a running container as the kernel does when its memory is used up.
func (r *Runtime) OOMKill(id string) error { return r.end(id, 137, "OOMKilled") }

func (r *Runtime) end(id string, code int32, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return notFound("container", id)
	}
	r.exitLocked(c, code, reason)
	return nil
}

func (r *Runtime) fault(call, subject string) error {
	if r.config.Fault == nil {
		return nil
	}
	return r.config.Fault(call, subject)
}

// newID makes a container id as runtimes do, 64 hexadecimal digits. It need not be hard to guess, only different.
func newID(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func exitReason(code int32) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q not found", kind, id)
}

// annotation finds the setting of a container: its own, its pod's for it by name, its pod's for all.
func annotation(key, name string, own, pod map[string]string) string {
	for _, value := range []string{own[key], pod[key+"/"+name], pod[key]} {
		if value != "" {
			return value
		}
	}
	return ""
}

func duration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, status.Errorf(codes.InvalidArgument, "annotation of simulated runtime: bad duration %q", text)
	}
	return d, nil
}

func code(text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "annotation of simulated runtime: bad exit code %q", text)
	}
	return int32(n), nil
}

// matches tells whether labels have all of the selector.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func sortedBy[T any](items map[string]T) []T {
	out := make([]T, 0, len(items))
	for _, key := range slices.Sorted(maps.Keys(items)) {
		out = append(out, items[key])
	}
	return out
}
