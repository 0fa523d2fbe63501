// Package cri runs containers through the container runtime interface: it is a runtime.Runtime over the gRPC socket of
// containerd (1.6 or newer) or CRI-O. It keeps no state of its own beyond the connection and a small map from containers
// to their sandboxes; what runs is always asked of the runtime.
package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// messageSize is the largest message accepted: a list of all containers of a full node, with their annotations.
const messageSize = 16 << 20

// callTimeout bounds calls that do not start, stop or pull anything.
const callTimeout = 2 * time.Minute

// Runtime is a runtime.Runtime behind a CRI socket. Use Dial. It is safe for concurrent use.
type Runtime struct {
	log    *slog.Logger
	conn   *grpc.ClientConn
	client v1.RuntimeServiceClient
	images v1.ImageServiceClient

	mu        sync.Mutex
	sandboxes map[string]string // container to sandbox, a sandbox to itself
}

var _ runtime.Runtime = (*Runtime)(nil)

// Dial connects to the CRI socket at the path and waits until the runtime answers or ctx ends. A connection lost later is
// made again by itself.
func Dial(ctx context.Context, socket string, log *slog.Logger) (*Runtime, error) {
	conn, err := Connect(socket)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		log:       log,
		conn:      conn,
		client:    v1.NewRuntimeServiceClient(conn),
		images:    v1.NewImageServiceClient(conn),
		sandboxes: map[string]string{},
	}
	version, err := r.client.Version(ctx, &v1.VersionRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask the runtime at %s for its version: %w", socket, err), conn.Close())
	}
	log.Debug("runtime connected", "socket", socket, "runtime", version.RuntimeName, "version", version.RuntimeVersion)
	return r, nil
}

// Connect opens a gRPC connection to a unix socket of a runtime, with delays between attempts that suit a local peer. It
// does not wait for the peer.
func Connect(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// A local peer that is gone refuses the connection; no keep-alive traffic while idle.
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageSize), grpc.MaxCallSendMsgSize(messageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to runtime at %s: %w", socket, err)
	}
	return conn, nil
}

// Close ends the connection. Containers keep running.
func (r *Runtime) Close() error { return r.conn.Close() }

// Version implements runtime.Runtime.
func (r *Runtime) Version(ctx context.Context) (*v1.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.client.Version(ctx, &v1.VersionRequest{})
}

// Status implements runtime.Runtime.
func (r *Runtime) Status(ctx context.Context) (*v1.RuntimeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.Status(ctx, &v1.StatusRequest{})
	if err != nil {
		return nil, err
	}
	return response.Status, nil
}

// RuntimeHandlers lists the handlers a RuntimeClass may name; empty where the runtime does not tell (containerd before 2.0).
func (r *Runtime) RuntimeHandlers(ctx context.Context) ([]*v1.RuntimeHandler, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.Status(ctx, &v1.StatusRequest{})
	if err != nil {
		return nil, err
	}
	return response.RuntimeHandlers, nil
}

func (r *Runtime) remember(id, sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[id] = sandbox
}

func (r *Runtime) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, id)
}
