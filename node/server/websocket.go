package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
)

// The subprotocols for exec and attach, the best first. The base64 ones carry the same channels in text messages.
var channelProtocols = []string{
	protocol.StreamProtocolV5Name,
	protocol.StreamProtocolV4Name,
	"v4.base64.channel.k8s.io",
	"channel.k8s.io",
	"base64.channel.k8s.io",
}

// upgrade turns a request into a WebSocket with one of the subprotocols. Who calls has been checked by certificate, so a
// browser's origin says nothing more.
func upgrade(w http.ResponseWriter, r *http.Request, protocols []string) (*websocket.Conn, error) {
	upgrader := websocket.Upgrader{Subprotocols: protocols, CheckOrigin: func(*http.Request) bool { return true }, HandshakeTimeout: creationTimeout}
	return upgrader.Upgrade(w, r, nil)
}

// channels is a WebSocket whose messages begin with the number of a channel.
type channels struct {
	conn   *websocket.Conn
	base64 bool

	mu sync.Mutex // one writer at a time
}

// write sends data on a channel.
func (c *channels) write(channel byte, data []byte) error {
	kind, message := websocket.BinaryMessage, make([]byte, 1, 1+len(data))
	message[0] = channel
	if c.base64 {
		kind, message[0] = websocket.TextMessage, '0'+channel
		message = base64.StdEncoding.AppendEncode(message, data)
	} else {
		message = append(message, data...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.WriteMessage(kind, message)
}

// read returns the next message and its channel.
func (c *channels) read() (channel byte, data []byte, err error) {
	for {
		_, message, err := c.conn.ReadMessage()
		if err != nil {
			return 0, nil, err
		}
		if len(message) == 0 {
			continue
		}
		if !c.base64 {
			return message[0], message[1:], nil
		}
		data, err := base64.StdEncoding.DecodeString(string(message[1:]))
		return message[0] - '0', data, err
	}
}

// close says goodbye in the manner of WebSocket and closes the connection.
func (c *channels) close() {
	deadline := time.Now().Add(5 * time.Second)
	_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), deadline)
	_ = c.conn.Close()
}

// channelWriter writes to one channel.
type channelWriter struct {
	*channels
	channel byte
}

// Write implements io.Writer.
func (w channelWriter) Write(data []byte) (int, error) {
	if err := w.write(w.channel, data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// openWebSocket answers a client that speaks WebSocket. cancel is called when it goes away.
func openWebSocket(w http.ResponseWriter, r *http.Request, want wanted, cancel context.CancelFunc) (*session, error) {
	conn, err := upgrade(w, r, channelProtocols)
	if err != nil {
		return nil, err
	}
	version := conn.Subprotocol()
	c := &channels{conn: conn, base64: strings.Contains(version, "base64")}
	stdin, feed := io.Pipe()
	done := make(chan struct{})
	client := &session{
		stdin:  stdin,
		stdout: channelWriter{c, protocol.StreamStdOut},
		stderr: channelWriter{c, protocol.StreamStdErr},
		sizes:  &sizeQueue{sizes: make(chan remotecommand.TerminalSize), done: done},
		finish: func(status metav1.Status) {
			_ = stdin.Close()
			if strings.HasPrefix(version, "v") {
				data, err := json.Marshal(status)
				if err == nil {
					_ = c.write(protocol.StreamErr, data) // the client is gone if this fails
				}
			} else if status.Status != metav1.StatusSuccess {
				_ = c.write(protocol.StreamErr, []byte(status.Message))
			}
			c.close()
		},
	}
	// An empty message on the first channel that has output tells the client that the connection stands.
	if err := c.write(protocol.StreamStdOut, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() { // ends with the connection, which finish closes
		defer cancel()
		defer close(done)
		err := c.receive(want, version == protocol.StreamProtocolV5Name, feed, client.sizes)
		feed.CloseWithError(err)
	}()
	return client, nil
}

// receive distributes a client's messages until it goes away.
func (c *channels) receive(want wanted, closable bool, stdin *io.PipeWriter, sizes *sizeQueue) error {
	for {
		channel, data, err := c.read()
		if err != nil {
			return io.EOF
		}
		switch {
		case channel == protocol.StreamStdIn && want.stdin:
			// An error says that the command reads no more; its output goes on.
			_, _ = stdin.Write(data)
		case channel == protocol.StreamResize && want.tty:
			var size remotecommand.TerminalSize
			if json.Unmarshal(data, &size) == nil {
				// Delivered beside the reading, which must not wait for a runtime that takes no sizes.
				select {
				case sizes.sizes <- size:
				case <-time.After(time.Second):
				}
			}
		case channel == protocol.StreamClose && closable && len(data) == 1 && data[0] == protocol.StreamStdIn:
			_ = stdin.Close()
		}
	}
}
