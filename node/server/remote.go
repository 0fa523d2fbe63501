package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idleTimeout ends a stream on which nothing has moved for so long, as upstream's default.
const idleTimeout = 4 * time.Hour

// creationTimeout is how long a client may take to open the streams it has announced.
const creationTimeout = 30 * time.Second

// wanted says which streams a client asks for.
type wanted struct{ stdin, stdout, stderr, tty bool }

// wantedOf reads the query of the node's API (input, output, error) or of the pod subresource (stdin, stdout, stderr).
func wantedOf(r *http.Request) (wanted, error) {
	query := r.URL.Query()
	on := func(names ...string) bool {
		for _, name := range names {
			if value, err := strconv.ParseBool(query.Get(name)); err == nil && value {
				return true
			}
		}
		return false
	}
	w := wanted{stdin: on("input", "stdin"), stdout: on("output", "stdout"), stderr: on("error", "stderr"), tty: on("tty")}
	if w.tty {
		w.stderr = false // a terminal has one output
	}
	if !w.stdin && !w.stdout && !w.stderr {
		return w, refuse(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return w, nil
}

// session is a client's end of an exec or attach, whatever it is carried by.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	sizes          *sizeQueue
	// finish tells the client how it ended and closes the session.
	finish func(metav1.Status)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	s.remote(w, r, func(ctx context.Context, container string, want wanted) (string, error) {
		return s.Runtime.Exec(ctx, &cri.ExecRequest{
			ContainerId: container, Cmd: r.URL.Query()["command"],
			Tty: want.tty, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr,
		})
	})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	s.remote(w, r, func(ctx context.Context, container string, want wanted) (string, error) {
		return s.Runtime.Attach(ctx, &cri.AttachRequest{
			ContainerId: container, Tty: want.tty, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr,
		})
	})
}

// remote connects a client's streams with those of the runtime's streaming server, whose address prepare returns.
func (s *Server) remote(w http.ResponseWriter, r *http.Request, prepare func(context.Context, string, wanted) (string, error)) {
	want, err := wantedOf(r)
	if err != nil {
		writeError(w, err)
		return
	}
	container, err := s.runningContainer(r)
	if err != nil {
		writeError(w, err)
		return
	}
	address, err := prepare(r.Context(), container, want)
	if err != nil {
		writeError(w, err)
		return
	}
	target, err := url.Parse(address)
	if err != nil {
		writeError(w, err)
		return
	}
	// A hijacked connection outlives the request's context in neither direction: it is ended by hand.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var client *session
	if isUpgrade(r, "websocket") {
		client, err = openWebSocket(w, r, want, cancel)
	} else {
		client, err = openSPDY(w, r, want, cancel)
	}
	if err != nil {
		s.Log.Debug("stream not opened", "path", r.URL.Path, "err", err)
		return
	}
	client.finish(outcome(s.bridge(ctx, target, want, client)))
}

func (s *Server) bridge(ctx context.Context, target *url.URL, want wanted, client *session) error {
	executor, err := remotecommand.NewSPDYExecutor(localConfig(), http.MethodPost, target)
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Tty: want.tty}
	if want.stdin {
		options.Stdin = client.stdin
	}
	if want.stdout {
		options.Stdout = client.stdout
	}
	if want.stderr {
		options.Stderr = client.stderr
	}
	if want.tty && client.sizes != nil {
		options.TerminalSizeQueue = client.sizes
	}
	return executor.StreamWithContext(ctx, options)
}

// localConfig reaches the runtime's streaming server: on this machine, never by a proxy.
func localConfig() *rest.Config {
	return &rest.Config{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
}

// outcome is the status that tells a client how its command ended.
func outcome(err error) metav1.Status {
	if err == nil {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	if exit, ok := errors.AsType[exec.ExitError](err); ok && exit.Exited() {
		return metav1.Status{
			Status: metav1.StatusFailure,
			Reason: protocol.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: protocol.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus())},
			}},
			Message: "command terminated with non-zero exit code: " + err.Error(),
		}
	}
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: "Internal error occurred: " + err.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: err.Error()}}},
	}
}

// run executes a command to its end and answers with its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	container, err := s.runningContainer(r)
	if err != nil {
		writeError(w, err)
		return
	}
	stdout, stderr, code, err := s.Runtime.ExecSync(r.Context(), container, strings.Fields(r.URL.Query().Get("cmd")), 0)
	if err != nil {
		writeError(w, err)
		return
	}
	if code != 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(append(stdout, stderr...))
}

// sizeQueue hands the newest sizes of a client's terminal to the runtime.
type sizeQueue struct {
	sizes chan remotecommand.TerminalSize
	done  <-chan struct{}
}

// Next implements remotecommand.TerminalSizeQueue.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size := <-q.sizes:
		return &size
	case <-q.done:
		return nil
	}
}

func (q *sizeQueue) put(size remotecommand.TerminalSize) {
	select {
	case q.sizes <- size:
	case <-q.done:
	}
}
