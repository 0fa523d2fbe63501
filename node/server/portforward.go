package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	clientspdy "k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"proa/internal/netns"
)

const (
	portForwardProtocol = "portforward.k8s.io"
	tunnelProtocol      = "SPDY/3.1+" + portForwardProtocol
)

// dialPort connects to a port inside a pod.
type dialPort func(ctx context.Context, port uint16) (io.ReadWriteCloser, error)

// namespaced is a runtime that tells where a sandbox's network is (cri.Runtime).
type namespaced interface {
	NetworkNamespace(ctx context.Context, sandbox string) (string, error)
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	pod, err := s.pod(r)
	if err != nil {
		writeError(w, refuse(http.StatusNotFound, "pod does not exist"))
		return
	}
	sandbox, err := s.sandbox(r.Context(), pod)
	if err != nil {
		writeError(w, err)
		return
	}
	dial, err := s.dialer(r.Context(), sandbox)
	if err != nil {
		writeError(w, err)
		return
	}
	f := &forwarder{server: s, pod: pod, dial: dial, pairs: map[string]*pair{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f.start = func(p *pair) { wg.Go(func() { f.forward(ctx, p) }) }
	if !isUpgrade(r, "websocket") {
		f.overSPDY(ctx, w, r)
		return
	}
	conn, err := upgrade(w, r, []string{tunnelProtocol, "v4.channel.k8s.io", "v4.base64.channel.k8s.io"})
	if err != nil {
		s.Log.Debug("port-forward not opened", "err", err)
		return
	}
	if conn.Subprotocol() == tunnelProtocol {
		f.overTunnel(ctx, portforward.NewTunnelingConnection("server", conn))
		return
	}
	f.overChannels(ctx, &channels{conn: conn, base64: conn.Subprotocol() == "v4.base64.channel.k8s.io"}, r.URL.Query()["port"])
}

// dialer dials from inside the sandbox's network namespace where the runtime tells it, which saves a process and two
// copies for every connection; else through the runtime.
func (s *Server) dialer(ctx context.Context, sandbox string) (dialPort, error) {
	if runtime, ok := s.Runtime.(namespaced); ok {
		path, err := runtime.NetworkNamespace(ctx, sandbox)
		if err == nil {
			return func(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
				return netns.DialLocal(ctx, path, port)
			}, nil
		}
		s.Log.Debug("network namespace unknown, forwarding through the runtime", "sandbox", sandbox, "err", err)
	}
	return func(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
		return s.dialRuntime(ctx, sandbox, port)
	}, nil
}

func (s *Server) dialRuntime(ctx context.Context, sandbox string, port uint16) (io.ReadWriteCloser, error) {
	address, err := s.Runtime.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: sandbox, Port: []int32{int32(port)}})
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := clientspdy.RoundTripperFor(localConfig())
	if err != nil {
		return nil, err
	}
	conn, _, err := clientspdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target).Dial(portForwardProtocol)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := conn.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = failure.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &runtimeConn{Stream: data, conn: conn}, nil
}

// runtimeConn is a connection into a pod by way of the runtime.
type runtimeConn struct {
	httpstream.Stream
	conn httpstream.Connection
}

// CloseWrite says that no more will be written.
func (c *runtimeConn) CloseWrite() error { return c.Stream.Close() }

// Close implements io.Closer.
func (c *runtimeConn) Close() error { return c.conn.Close() }

// forwarder serves the connections of one client to one pod.
type forwarder struct {
	server *Server
	pod    *corev1.Pod
	dial   dialPort
	start  func(*pair)
	conn   httpstream.Connection

	mu    sync.Mutex
	pairs map[string]*pair
}

// pair is one forwarded connection: its data, and a stream for what goes wrong.
type pair struct {
	port          uint16
	data, failure io.ReadWriteCloser
	done          func()
}

func (f *forwarder) overSPDY(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portForwardProtocol}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ready := make(chan struct{})
	f.conn = spdy.NewResponseUpgrader().UpgradeResponse(w, r, f.accept(ready))
	close(ready)
	if f.conn != nil {
		f.serve(ctx)
	}
}

func (f *forwarder) overTunnel(ctx context.Context, tunnel net.Conn) {
	ready := make(chan struct{})
	conn, err := spdy.NewServerConnection(tunnel, f.accept(ready))
	f.conn = conn
	close(ready)
	if err != nil {
		f.server.Log.Debug("port-forward tunnel not opened", "err", err)
		_ = tunnel.Close()
		return
	}
	f.serve(ctx)
}

// serve waits for the client or the server to end the connection.
func (f *forwarder) serve(ctx context.Context) {
	f.conn.SetIdleTimeout(idleTimeout)
	select {
	case <-f.conn.CloseChan():
	case <-ctx.Done():
	}
	_ = f.conn.Close()
}

// accept takes a client's streams and starts forwarding when both of a connection have come. Streams may come before
// the connection's own value is known, hence ready.
func (f *forwarder) accept(ready <-chan struct{}) httpstream.NewStreamHandler {
	return func(stream httpstream.Stream, replied <-chan struct{}) error {
		port, err := strconv.ParseUint(stream.Headers().Get(corev1.PortHeader), 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("unable to parse %q as a port", stream.Headers().Get(corev1.PortHeader))
		}
		kind := stream.Headers().Get(corev1.StreamType)
		if kind != corev1.StreamTypeError && kind != corev1.StreamTypeData {
			return fmt.Errorf("invalid stream type %q", kind)
		}
		id := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
		if id == "" {
			// Old clients give no id, but open the data stream right after the error stream.
			number := stream.Identifier()
			if kind == corev1.StreamTypeData {
				number -= 2
			}
			id = strconv.FormatUint(uint64(number), 10)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		p := f.pairs[id]
		if p == nil {
			p = &pair{port: uint16(port)}
			f.pairs[id] = p
		}
		slot := &p.data
		if kind == corev1.StreamTypeError {
			slot = &p.failure
		}
		if *slot != nil {
			return fmt.Errorf("%s stream of request %s exists already", kind, id)
		}
		*slot = stream
		if p.data == nil || p.failure == nil {
			return nil
		}
		delete(f.pairs, id)
		data, failure := p.data.(httpstream.Stream), p.failure.(httpstream.Stream)
		p.done = func() { f.conn.RemoveStreams(data, failure) }
		f.start(&pair{port: p.port, data: awaitReply{data, ready, replied}, failure: failure, done: p.done})
		return nil
	}
}

// awaitReply holds back the first use of a stream until the client knows of it.
type awaitReply struct {
	httpstream.Stream
	ready, replied <-chan struct{}
}

func (f *forwarder) forward(ctx context.Context, p *pair) {
	if waits, ok := p.data.(awaitReply); ok {
		for _, signal := range []<-chan struct{}{waits.ready, waits.replied} {
			select {
			case <-signal:
			case <-ctx.Done():
				return
			}
		}
	}
	if p.done != nil {
		defer p.done()
	}
	defer p.failure.Close()
	defer p.data.Close()
	if err := f.copy(ctx, p); err != nil && ctx.Err() == nil {
		f.server.Log.Debug("port not forwarded", "pod", f.pod.Namespace+"/"+f.pod.Name, "port", p.port, "err", err)
		fmt.Fprintf(p.failure, "error forwarding port %d to pod %s, uid %s: %v", p.port, f.pod.Name, f.pod.UID, err)
	}
}

// copy moves bytes both ways until the pod has closed its side, or ctx ends.
func (f *forwarder) copy(ctx context.Context, p *pair) error {
	conn, err := f.dial(ctx, p.port)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	sent := make(chan struct{})
	go func() { // ends when the client's stream ends or the pod's connection is closed
		defer close(sent)
		_, _ = io.Copy(conn, p.data)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(p.data, conn)
	_ = p.data.Close()
	_ = conn.Close()
	select {
	case <-sent:
	case <-time.After(time.Second):
		// The client keeps its side open though nobody reads it.
		if stream, ok := p.data.(interface{ Reset() error }); ok {
			_ = stream.Reset()
		}
	}
	return err
}

// overChannels serves the older WebSocket protocol: the ports are in the query, each has a data and an error channel,
// and the first message of either is the port's number.
func (f *forwarder) overChannels(ctx context.Context, c *channels, ports []string) {
	defer c.close()
	feeds := make([]*io.PipeWriter, len(ports))
	for i, text := range ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return
		}
		reader, writer := io.Pipe()
		feeds[i] = writer
		data := &channelConn{PipeReader: reader, channelWriter: channelWriter{c, byte(2 * i)}}
		failure := &channelConn{PipeReader: reader, channelWriter: channelWriter{c, byte(2*i + 1)}}
		number := binary.LittleEndian.AppendUint16(nil, uint16(port))
		if c.write(byte(2*i), number) != nil || c.write(byte(2*i+1), number) != nil {
			return
		}
		f.start(&pair{port: uint16(port), data: data, failure: failure})
	}
	defer func() {
		for _, feed := range feeds {
			if feed != nil {
				_ = feed.Close()
			}
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	for {
		channel, data, err := c.read()
		if err != nil {
			return
		}
		if i := int(channel) / 2; channel%2 == 0 && i < len(feeds) {
			_, _ = feeds[i].Write(data) // a port whose connection has ended takes no more
		}
	}
}

// channelConn is one channel of a WebSocket as a connection.
type channelConn struct {
	*io.PipeReader
	channelWriter
}

// Read implements io.Reader.
func (c *channelConn) Read(data []byte) (int, error) { return c.PipeReader.Read(data) }

// Close ends the reading side; a channel has no end of its own.
func (c *channelConn) Close() error { return c.PipeReader.Close() }
