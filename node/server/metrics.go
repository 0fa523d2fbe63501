package server

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proa/node/stats"
)

const metricsType = "text/plain; version=0.0.4; charset=utf-8"

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	if summary := s.measure(w, r); summary != nil {
		writeJSON(w, summary)
	}
}

// measure answers the request itself when there is nothing to measure with.
func (s *Server) measure(w http.ResponseWriter, r *http.Request) *stats.Summary {
	if s.Stats == nil {
		http.NotFound(w, r)
		return nil
	}
	summary, err := s.Stats.Summary(r.Context())
	if err != nil {
		writeError(w, err)
		return nil
	}
	return summary
}

// exposition writes metrics in the text format.
type exposition struct{ strings.Builder }

func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one value; labels are names and values in turn. A zero time writes none.
func (e *exposition) sample(name string, value float64, when time.Time, labels ...string) {
	e.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		fmt.Fprintf(e, "%s%s=%s", separator, labels[i], strconv.Quote(labels[i+1]))
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	e.WriteByte(' ')
	e.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
	if !when.IsZero() {
		fmt.Fprintf(e, " %d", when.UnixMilli())
	}
	e.WriteByte('\n')
}

func (e *exposition) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", metricsType)
	_, _ = w.Write([]byte(e.String())) // the client is gone if this fails
}

// resourceMetrics are what metrics-server reads.
func (s *Server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	summary := s.measure(w, r)
	if summary == nil {
		return
	}
	var e exposition
	seconds := func(c *stats.CPUStats) float64 { return float64(*c.UsageCoreNanoSeconds) / 1e9 }
	e.family("container_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the container in core-seconds")
	eachContainer(summary, func(c stats.ContainerStats, labels []string) {
		if c.CPU != nil {
			e.sample("container_cpu_usage_seconds_total", seconds(c.CPU), c.CPU.Time, labels...)
		}
	})
	e.family("container_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the container in bytes")
	eachContainer(summary, func(c stats.ContainerStats, labels []string) {
		if c.Memory != nil {
			e.sample("container_memory_working_set_bytes", float64(*c.Memory.WorkingSetBytes), c.Memory.Time, labels...)
		}
	})
	e.family("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds")
	eachContainer(summary, func(c stats.ContainerStats, labels []string) {
		e.sample("container_start_time_seconds", float64(c.StartTime.UnixNano())/1e9, time.Time{}, labels...)
	})
	if cpu := summary.Node.CPU; cpu != nil {
		e.family("node_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the node in core-seconds")
		e.sample("node_cpu_usage_seconds_total", seconds(cpu), cpu.Time)
	}
	if memory := summary.Node.Memory; memory != nil {
		e.family("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes")
		e.sample("node_memory_working_set_bytes", float64(*memory.WorkingSetBytes), memory.Time)
	}
	e.family("pod_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds")
	for _, pod := range summary.Pods {
		if pod.CPU != nil {
			e.sample("pod_cpu_usage_seconds_total", seconds(pod.CPU), pod.CPU.Time, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name)
		}
	}
	e.family("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes")
	for _, pod := range summary.Pods {
		if pod.Memory != nil {
			e.sample("pod_memory_working_set_bytes", float64(*pod.Memory.WorkingSetBytes), pod.Memory.Time, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name)
		}
	}
	e.family("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
	e.sample("resource_scrape_error", 0, time.Time{})
	e.serve(w)
}

func eachContainer(summary *stats.Summary, f func(stats.ContainerStats, []string)) {
	for _, pod := range summary.Pods {
		for _, container := range pod.Containers {
			f(container, []string{"container", container.Name, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name})
		}
	}
}

// cadvisorMetrics are the names of cAdvisor that dashboards use most.
func (s *Server) cadvisorMetrics(w http.ResponseWriter, r *http.Request) {
	summary := s.measure(w, r)
	if summary == nil {
		return
	}
	var e exposition
	container := func(name, kind, help string, value func(stats.ContainerStats) *float64) {
		e.family(name, kind, help)
		eachContainer(summary, func(c stats.ContainerStats, labels []string) {
			if v := value(c); v != nil {
				e.sample(name, *v, time.Time{}, labels...)
			}
		})
	}
	container("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", func(c stats.ContainerStats) *float64 {
		if c.CPU == nil {
			return nil
		}
		return new(float64(*c.CPU.UsageCoreNanoSeconds) / 1e9)
	})
	memory := func(pick func(*stats.MemoryStats) *uint64) func(stats.ContainerStats) *float64 {
		return func(c stats.ContainerStats) *float64 {
			if c.Memory == nil || pick(c.Memory) == nil {
				return nil
			}
			return new(float64(*pick(c.Memory)))
		}
	}
	container("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed",
		memory(func(m *stats.MemoryStats) *uint64 { return m.UsageBytes }))
	container("container_memory_working_set_bytes", "gauge", "Current working set in bytes.",
		memory(func(m *stats.MemoryStats) *uint64 { return m.WorkingSetBytes }))
	container("container_memory_rss", "gauge", "Size of RSS in bytes.",
		memory(func(m *stats.MemoryStats) *uint64 { return m.RSSBytes }))
	traffic := func(name, help string, pick func(stats.InterfaceStats) *uint64) {
		e.family(name, "counter", help)
		for _, pod := range summary.Pods {
			if pod.Network == nil {
				continue
			}
			for _, i := range pod.Network.Interfaces {
				e.sample(name, float64(*pick(i)), time.Time{}, "interface", i.Name, "namespace", pod.PodRef.Namespace, "pod", pod.PodRef.Name)
			}
		}
	}
	traffic("container_network_receive_bytes_total", "Cumulative count of bytes received", func(i stats.InterfaceStats) *uint64 { return i.RxBytes })
	traffic("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", func(i stats.InterfaceStats) *uint64 { return i.TxBytes })
	e.family("machine_cpu_cores", "gauge", "Number of logical CPU cores.")
	e.sample("machine_cpu_cores", float64(runtime.NumCPU()), time.Time{})
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.")
		e.sample("machine_memory_bytes", float64(uint64(info.Totalram)*uint64(info.Unit)), time.Time{})
	}
	e.serve(w)
}

// metrics are the agent's own.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.Metrics != nil {
		s.Metrics.ServeHTTP(w, r)
		return
	}
	var e exposition
	sandboxes, err := s.Runtime.ListPodSandbox(r.Context(), nil)
	if err != nil {
		writeError(w, err)
		return
	}
	containers, err := s.Runtime.ListContainers(r.Context(), nil)
	if err != nil {
		writeError(w, err)
		return
	}
	ready := 0
	for _, sandbox := range sandboxes {
		if sandbox.State == 0 {
			ready++
		}
	}
	states := map[string]int{}
	for _, container := range containers {
		states[strings.ToLower(strings.TrimPrefix(container.State.String(), "CONTAINER_"))]++
	}
	e.family("kubelet_running_pods", "gauge", "[ALPHA] Number of pods that have a running pod sandbox")
	e.sample("kubelet_running_pods", float64(ready), time.Time{})
	e.family("kubelet_running_containers", "gauge", "[ALPHA] Number of containers currently running")
	for _, state := range []string{"created", "exited", "running", "unknown"} {
		if states[state] > 0 {
			e.sample("kubelet_running_containers", float64(states[state]), time.Time{}, "container_state", state)
		}
	}
	e.family("go_goroutines", "gauge", "Number of goroutines that currently exist.")
	e.sample("go_goroutines", float64(runtime.NumGoroutine()), time.Time{})
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(data)); len(fields) > 1 {
			if pages, err := strconv.ParseFloat(fields[1], 64); err == nil {
				e.family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
				e.sample("process_resident_memory_bytes", pages*float64(os.Getpagesize()), time.Time{})
			}
		}
	}
	e.serve(w)
}
