package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logOptions are what a client may ask of a log.
type logOptions struct {
	follow, previous, timestamps bool
	tail                         int64     // lines, -1 for all
	limit                        int64     // bytes, -1 for all
	since                        time.Time // zero for all
}

func parseLogOptions(query url.Values, now time.Time) (logOptions, error) {
	options := logOptions{tail: -1, limit: -1}
	for name, target := range map[string]*bool{"follow": &options.follow, "previous": &options.previous, "timestamps": &options.timestamps} {
		if text := query.Get(name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return options, refuse(http.StatusBadRequest, "Unable to decode query: %s: %q", name, text)
			}
			*target = value
		}
	}
	number := func(name string, minimum int64, set func(int64)) error {
		text := query.Get(name)
		if text == "" {
			return nil
		}
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value < minimum {
			return refuse(http.StatusUnprocessableEntity, "%s: Invalid value: %q: must be greater than or equal to %d", name, text, minimum)
		}
		set(value)
		return nil
	}
	if err := number("tailLines", 0, func(v int64) { options.tail = v }); err != nil {
		return options, err
	}
	if err := number("limitBytes", 1, func(v int64) { options.limit = v }); err != nil {
		return options, err
	}
	if err := number("sinceSeconds", 1, func(v int64) { options.since = now.Add(-time.Duration(v) * time.Second) }); err != nil {
		return options, err
	}
	if text := query.Get("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return options, refuse(http.StatusBadRequest, "Unable to decode query: sinceTime: %q", text)
		}
		options.since = since
	}
	return options, nil
}

func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, err)
		return
	}
	pod, err := s.pod(r)
	if err != nil {
		writeError(w, err)
		return
	}
	id, err := s.loggedContainer(r.Context(), pod, r.PathValue("container"), options.previous)
	if err != nil {
		writeError(w, err)
		return
	}
	status, err := s.Runtime.ContainerStatus(r.Context(), id)
	if err != nil {
		writeError(w, refuse(http.StatusBadRequest, "unable to retrieve container logs for %s: %v", id, err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if status.LogPath == "" {
		return // a simulated container writes nothing
	}
	log := logReader{
		path:    status.LogPath,
		options: options,
		out:     w,
		flush:   func() { _ = http.NewResponseController(w).Flush() },
		running: func(ctx context.Context) bool {
			status, err := s.Runtime.ContainerStatus(ctx, id)
			return err == nil && status.State == cri.ContainerState_CONTAINER_RUNNING
		},
	}
	log.flush() // the headers, so that a follower knows that it is connected
	if err := log.copy(r.Context()); err != nil && r.Context().Err() == nil {
		s.Log.Debug("log not read to its end", "container", id, "path", status.LogPath, "err", err)
	}
}
