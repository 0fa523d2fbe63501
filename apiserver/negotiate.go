package apiserver

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// encodingKind is a format of bodies.
type encodingKind int

const (
	asJSON encodingKind = iota
	asYAML
	asProtobuf
)

const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
)

// view is what a client wants to see of objects.
type view int

const (
	whole view = iota
	tableView
	partialView
	partialListView
)

// format of an answer.
type format struct {
	encoding encodingKind
	view     view
	// version of meta.k8s.io for tables and partial objects.
	version string
	pretty  bool
	stream  bool
}

// contentType names the format in an answer.
func (f format) contentType() string {
	switch f.encoding {
	case asYAML:
		return typeYAML
	case asProtobuf:
		if f.stream {
			return typeProtobuf + ";stream=watch"
		}
		return typeProtobuf
	}
	return typeJSON
}

// negotiate picks the first acceptable format. ok is false when there is none.
func negotiate(r *http.Request, stream bool) (f format, ok bool) {
	f.stream = stream
	f.pretty = wantsPretty(r)
	accept := r.Header.Get("Accept")
	if accept == "" || accept == "*/*" || accept == typeJSON {
		return f, true
	}
	best, bestWeight := f, -1.0
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			weight = q
		}
		if weight <= bestWeight || weight == 0 {
			continue
		}
		candidate := f
		switch media {
		case "*/*", "application/*", typeJSON:
			candidate.encoding = asJSON
		case typeProtobuf:
			candidate.encoding = asProtobuf
		case typeYAML:
			if stream {
				continue
			}
			candidate.encoding = asYAML
		default:
			continue
		}
		if as := params["as"]; as != "" {
			if params["g"] != "meta.k8s.io" || params["v"] != "v1" && params["v"] != "v1beta1" {
				continue
			}
			candidate.version = params["v"]
			switch as {
			case "Table":
				if candidate.encoding == asProtobuf {
					continue // tables have no protobuf form
				}
				candidate.view = tableView
			case "PartialObjectMetadata":
				candidate.view = partialView
			case "PartialObjectMetadataList":
				candidate.view = partialListView
			default:
				continue
			}
		}
		best, bestWeight = candidate, weight
	}
	return best, bestWeight >= 0
}

// wantsPretty: asked for, or a person at a terminal or browser.
func wantsPretty(r *http.Request) bool {
	if v, given := r.URL.Query()["pretty"]; given {
		return len(v) > 0 && v[0] != "false" && v[0] != "0"
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
