package apiserver

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"proa/apiserver/request"
)

// metrics counts requests, and shows the counts in Prometheus' text form.
type metrics struct {
	start time.Time

	mu       sync.Mutex
	requests map[requestLabels]uint64
	times    map[timeLabels]*histogram
}

type requestLabels struct {
	verb, group, version, resource, subresource, scope string
	code                                               int
}

type timeLabels struct{ verb, group, version, resource, subresource, scope string }

type histogram struct {
	counts [11]uint64
	total  uint64
	sum    float64
}

// bounds of the buckets of request durations, in seconds.
func bounds() [11]float64 {
	return [11]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 1, 5, 15, 60}
}

func newMetrics() *metrics {
	return &metrics{start: time.Now(), requests: map[requestLabels]uint64{}, times: map[timeLabels]*histogram{}}
}

func (m *metrics) request(info *request.Info, code int, took time.Duration) {
	labels := timeLabels{verb: info.Verb}
	if info.IsResource {
		scope := "cluster"
		switch {
		case info.Name != "":
			scope = "resource"
		case info.Namespace != "":
			scope = "namespace"
		}
		labels = timeLabels{info.Verb, info.Group, info.Version, info.Resource, info.Subresource, scope}
		if code == http.StatusNotFound && info.Name == "" {
			labels.group, labels.version, labels.resource, labels.subresource = "", "", "", ""
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[requestLabels{labels.verb, labels.group, labels.version, labels.resource, labels.subresource, labels.scope, code}]++
	if info.Verb == "watch" {
		return
	}
	h := m.times[labels]
	if h == nil {
		h = &histogram{}
		m.times[labels] = h
	}
	seconds := took.Seconds()
	for i, bound := range bounds() {
		if seconds <= bound {
			h.counts[i]++
		}
	}
	h.total++
	h.sum += seconds
}

func (m *metrics) serve(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	m.mu.Lock()
	b.WriteString("# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, group, version, resource, scope, component, and HTTP response code.\n# TYPE apiserver_request_total counter\n")
	keys := slices.SortedFunc(maps.Keys(m.requests), func(a, c requestLabels) int {
		return cmp.Or(cmp.Compare(a.resource, c.resource), cmp.Compare(a.verb, c.verb), cmp.Compare(a.code, c.code))
	})
	for _, k := range keys {
		fmt.Fprintf(&b, "apiserver_request_total{code=\"%d\",component=\"apiserver\",dry_run=\"\",group=%q,resource=%q,scope=%q,subresource=%q,verb=%q,version=%q} %d\n",
			k.code, k.group, k.resource, k.scope, k.subresource, verbLabel(k.verb), k.version, m.requests[k])
	}
	b.WriteString("# HELP apiserver_request_duration_seconds [STABLE] Response latency distribution in seconds.\n# TYPE apiserver_request_duration_seconds histogram\n")
	times := slices.SortedFunc(maps.Keys(m.times), func(a, c timeLabels) int {
		return cmp.Or(cmp.Compare(a.resource, c.resource), cmp.Compare(a.verb, c.verb))
	})
	for _, k := range times {
		h := m.times[k]
		labels := fmt.Sprintf("component=\"apiserver\",dry_run=\"\",group=%q,resource=%q,scope=%q,subresource=%q,verb=%q,version=%q",
			k.group, k.resource, k.scope, k.subresource, verbLabel(k.verb), k.version)
		for i, bound := range bounds() {
			fmt.Fprintf(&b, "apiserver_request_duration_seconds_bucket{%s,le=\"%s\"} %d\n", labels, strconv.FormatFloat(bound, 'g', -1, 64), h.counts[i])
		}
		fmt.Fprintf(&b, "apiserver_request_duration_seconds_bucket{%s,le=\"+Inf\"} %d\n", labels, h.total)
		fmt.Fprintf(&b, "apiserver_request_duration_seconds_sum{%s} %g\n", labels, h.sum)
		fmt.Fprintf(&b, "apiserver_request_duration_seconds_count{%s} %d\n", labels, h.total)
	}
	m.mu.Unlock()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	fmt.Fprintf(&b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n", m.start.Unix())
	fmt.Fprintf(&b, "# TYPE go_goroutines gauge\ngo_goroutines %d\n", runtime.NumGoroutine())
	fmt.Fprintf(&b, "# TYPE go_memstats_heap_alloc_bytes gauge\ngo_memstats_heap_alloc_bytes %d\n", mem.HeapAlloc)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// verbLabel is how metrics write a verb.
func verbLabel(verb string) string {
	switch verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	}
	return string(bytes.ToUpper([]byte(verb)))
}
