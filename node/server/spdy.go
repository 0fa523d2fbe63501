package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// openedStream is a stream a client has made; replied is closed once the client has been told so.
type openedStream struct {
	httpstream.Stream
	replied <-chan struct{}
}

// openSPDY answers a client that speaks SPDY and waits for the streams it has to open. cancel is called when it goes away.
func openSPDY(w http.ResponseWriter, r *http.Request, want wanted, cancel context.CancelFunc) (*session, error) {
	version, err := httpstream.Handshake(r, w, protocol.SupportedStreamingProtocols)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, err
	}
	opened := make(chan openedStream, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		select {
		case opened <- openedStream{stream, replied}:
			return nil
		default:
			return errors.New("too many streams")
		}
	})
	if conn == nil {
		return nil, errors.New("connection not upgraded") // the upgrader has answered
	}
	conn.SetIdleTimeout(idleTimeout)
	done := make(chan struct{})
	go func() { // ends with the connection, which finish closes
		<-conn.CloseChan()
		cancel()
		close(done)
	}()
	resizable := want.tty && version != protocol.StreamProtocolV2Name && version != protocol.StreamProtocolV1Name && version != ""
	streams, err := awaitStreams(opened, done, want, resizable)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	client := &session{
		stdin:  streams[corev1.StreamTypeStdin],
		stdout: streams[corev1.StreamTypeStdout],
		stderr: streams[corev1.StreamTypeStderr],
		finish: func(status metav1.Status) {
			defer conn.Close()
			failure := streams[corev1.StreamTypeError]
			if version == protocol.StreamProtocolV4Name {
				_ = json.NewEncoder(failure).Encode(status) // the client is gone if this fails
			} else if status.Status != metav1.StatusSuccess {
				_, _ = failure.Write([]byte(status.Message))
			}
			_ = failure.Close()
		},
	}
	if resizable {
		client.sizes = &sizeQueue{sizes: make(chan remotecommand.TerminalSize), done: done}
		go func() { // ends with the connection
			decoder := json.NewDecoder(streams[corev1.StreamTypeResize])
			for {
				var size remotecommand.TerminalSize
				if decoder.Decode(&size) != nil {
					return
				}
				client.sizes.put(size)
			}
		}()
	}
	return client, nil
}

// awaitStreams collects the streams by type until all have come.
func awaitStreams(opened <-chan openedStream, gone <-chan struct{}, want wanted, resizable bool) (map[string]httpstream.Stream, error) {
	missing := map[string]bool{corev1.StreamTypeError: true}
	for kind, needed := range map[string]bool{
		corev1.StreamTypeStdin: want.stdin, corev1.StreamTypeStdout: want.stdout,
		corev1.StreamTypeStderr: want.stderr, corev1.StreamTypeResize: resizable,
	} {
		if needed {
			missing[kind] = true
		}
	}
	streams := map[string]httpstream.Stream{}
	timeout := time.NewTimer(creationTimeout)
	defer timeout.Stop()
	for len(missing) > 0 {
		select {
		case stream := <-opened:
			kind := stream.Headers().Get(corev1.StreamType)
			select {
			case <-stream.replied:
			case <-gone:
				return nil, errors.New("client is gone")
			}
			if !missing[kind] {
				return nil, fmt.Errorf("unexpected stream of type %q", kind)
			}
			delete(missing, kind)
			streams[kind] = stream.Stream
		case <-gone:
			return nil, errors.New("client is gone")
		case <-timeout.C:
			return nil, errors.New("timed out waiting for client to create streams")
		}
	}
	return streams, nil
}
