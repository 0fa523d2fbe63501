package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *problems) probes(c *containerContext, ctr *corev1.Container, path *field.Path) {
	p.probe(c, ctr.LivenessProbe, true, path.Child("livenessProbe"))
	p.probe(c, ctr.StartupProbe, true, path.Child("startupProbe"))
	p.probe(c, ctr.ReadinessProbe, false, path.Child("readinessProbe"))
	if r := ctr.ReadinessProbe; r != nil && r.TerminationGracePeriodSeconds != nil {
		p.invalid(path.Child("readinessProbe", "terminationGracePeriodSeconds"), *r.TerminationGracePeriodSeconds,
			"must not be set for readinessProbes")
	}
}

// probe checks a probe; a fatal one kills the container and so cannot count successes.
func (p *problems) probe(c *containerContext, probe *corev1.Probe, fatal bool, path *field.Path) {
	if probe == nil {
		return
	}
	h := &probe.ProbeHandler
	p.handler(c, handler{h.Exec, h.HTTPGet, h.TCPSocket, h.GRPC, nil}, path)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds},
		{"timeoutSeconds", probe.TimeoutSeconds},
		{"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold},
		{"failureThreshold", probe.FailureThreshold},
	} {
		p.nonNegative(path.Child(f.name), int64(f.value))
	}
	if fatal {
		if t := probe.TerminationGracePeriodSeconds; t != nil && *t <= 0 {
			p.invalid(path.Child("terminationGracePeriodSeconds"), *t, "must be greater than 0")
		}
		if probe.SuccessThreshold != 1 {
			p.invalid(path.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
		}
	}
}

func (p *problems) lifecycle(c *containerContext, l *corev1.Lifecycle, path *field.Path) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		p.handler(c, handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, path.Child("postStart"))
	}
	if h := l.PreStop; h != nil {
		p.handler(c, handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, path.Child("preStop"))
	}
}

// handler is what probes and lifecycle hooks can do.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func (p *problems) handler(c *containerContext, h handler, path *field.Path) {
	n := 0
	only := func(name string, set bool) bool {
		if !set {
			return false
		}
		n++
		if n > 1 {
			p.forbidden(path.Child(name), "may not specify more than 1 handler type")
		}
		return n == 1
	}
	if only("exec", h.exec != nil) && len(h.exec.Command) == 0 {
		p.required(path.Child("exec", "command"), "")
	}
	if only("httpGet", h.http != nil) {
		p.httpGet(h.http, path.Child("httpGet"))
	}
	if only("tcpSocket", h.tcp != nil) {
		p.portOrName(path.Child("tcpSocket", "port"), h.tcp.Port)
	}
	if only("grpc", h.grpc != nil) {
		p.port(path.Child("grpc", "port"), h.grpc.Port)
	}
	if only("sleep", h.sleep != nil) && (h.sleep.Seconds <= 0 || h.sleep.Seconds > c.grace) {
		p.invalid(path.Child("sleep"), h.sleep.Seconds,
			fmt.Sprintf("must be greater than 0 and less than terminationGracePeriodSeconds (%d)", c.grace))
	}
	if n == 0 {
		p.required(path, "must specify a handler type")
	}
}

func (p *problems) httpGet(g *corev1.HTTPGetAction, path *field.Path) {
	p.some(path.Child("path"), g.Path)
	p.portOrName(path.Child("port"), g.Port)
	if g.Scheme != corev1.URISchemeHTTP && g.Scheme != corev1.URISchemeHTTPS {
		p.list = append(p.list, field.NotSupported(path.Child("scheme"), g.Scheme,
			[]corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
	}
	for _, h := range g.HTTPHeaders {
		p.messages(path.Child("httpHeaders"), h.Name, utilvalidation.IsHTTPHeaderName(h.Name))
	}
}
