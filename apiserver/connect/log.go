package connect

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/apiserver/request"
)

// logOptions checks the options of a log request and returns them as the node's server reads them.
func logOptions(q url.Values) (url.Values, field.ErrorList, error) {
	out := url.Values{}
	var errs field.ErrorList
	for _, name := range []string{"follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend"} {
		if !q.Has(name) {
			continue
		}
		// An empty value means yes, as everywhere in the API's query parameters.
		if v := q.Get(name); v != "" && v != "false" && v != "0" || v == "" {
			out.Set(name, "true")
		}
	}
	number := func(name string, least int64, text string) error {
		if !q.Has(name) {
			return nil
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("unable to decode query parameter %s: %v", name, err))
		}
		if n < least {
			errs = append(errs, field.Invalid(field.NewPath(name), n, text))
		}
		out.Set(name, strconv.FormatInt(n, 10))
		return nil
	}
	if err := number("tailLines", 0, "must be greater than or equal to 0"); err != nil {
		return nil, nil, err
	}
	if err := number("limitBytes", 1, "must be greater than 0"); err != nil {
		return nil, nil, err
	}
	if err := number("sinceSeconds", 1, "must be greater than 0"); err != nil {
		return nil, nil, err
	}
	if q.Has("sinceTime") {
		if _, err := time.Parse(time.RFC3339Nano, q.Get("sinceTime")); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("unable to decode query parameter sinceTime: %v", err))
		}
		if q.Has("sinceSeconds") {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
		out.Set("sinceTime", q.Get("sinceTime"))
	}
	return out, errs, nil
}

func (x *connector) logs(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	options, errs, err := logOptions(r.URL.Query())
	if err != nil {
		return err
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, info.Name, errs)
	}
	pod, err := x.getPod(r, info)
	if err != nil {
		return err
	}
	name, err := container(pod, r.URL.Query().Get("container"))
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		// Nothing has been written yet; that is no error.
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	target, err := x.nodeURL(r.Context(), pod.Spec.NodeName)
	if err != nil {
		return err
	}
	target.Path = "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + name
	target.RawQuery = options.Encode()
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return x.logSocket(w, r, target)
	}
	forward(w, r, target, x.nodes, nil)
	return nil
}

// logSocket sends a log as the messages of a WebSocket, one for each piece as it comes: plain, or in Base64 where the client
// asks for that subprotocol.
func (x *connector) logSocket(w http.ResponseWriter, r *http.Request, target *url.URL) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	res, err := x.nodes.RoundTrip(req)
	if err != nil {
		return apierrors.NewServiceUnavailable("error trying to reach service: " + err.Error())
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
		if err != nil {
			return err
		}
		return apierrors.NewGenericServerResponse(res.StatusCode, "get", schema.GroupResource{Resource: "pods"}, "", strings.TrimSpace(string(text)), 0, true)
	}
	upgrader := websocket.Upgrader{
		Subprotocols: []string{"", "binary.k8s.io", "base64.binary.k8s.io"}, CheckOrigin: func(*http.Request) bool { return true },
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil // the upgrader has answered
	}
	defer conn.Close()
	go func() {
		// A client says nothing but that it leaves.
		defer cancel()
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			kind, message := websocket.BinaryMessage, buf[:n]
			if conn.Subprotocol() == "base64.binary.k8s.io" {
				kind, message = websocket.TextMessage, base64.StdEncoding.AppendEncode(nil, buf[:n])
			}
			if conn.WriteMessage(kind, message) != nil {
				return nil // the client left
			}
		}
		if err != nil {
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
			return nil
		}
	}
}
