package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa/api"
)

func defaultPod(obj api.Object) {
	pod := obj.(*corev1.Pod)
	spec := &pod.Spec
	DefaultPodSpec(spec)
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = new(corev1.DefaultEnableServiceLinks)
	}
	// Templates are left alone in the following, so that what they stand for may change with the cluster's version.
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
	if spec.HostNetwork {
		hostPorts(spec.InitContainers)
		hostPorts(spec.Containers)
	}
	defaultPodResources(spec)
}

// requestLimits makes a limit without a request the request as well.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

// hostPorts gives containers in the node's network the ports they listen on.
func hostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			if p := &containers[i].Ports[j]; p.HostPort == 0 {
				p.HostPort = p.ContainerPort
			}
		}
	}
}

// defaultPodResources completes requests and limits of the pod as a whole, when some are given: a missing request is
// what the containers request together, else the pod's limit.
func defaultPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	together := containerRequests(spec)
	for name, request := range together {
		if !podLevelResource(name) {
			continue
		}
		if _, ok := r.Requests[name]; !ok {
			// A huge page limit equals its request; the containers' share alone says nothing about a pod without any.
			if _, limited := r.Limits[name]; limited && strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				continue
			}
			setResource(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			setResource(&r.Requests, name, limit)
		}
	}
}

func setResource(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// DefaultPodTemplate fills in the absent fields of a pod template.
func DefaultPodTemplate(t *corev1.PodTemplateSpec) { DefaultPodSpec(&t.Spec) }

// DefaultPodSpec fills in the absent fields of a pod spec in a template. A pod's own spec has some more defaults: the
// requests that follow from limits, host ports and service links.
func DefaultPodSpec(spec *corev1.PodSpec) {
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	}
	// Both names of the field are kept in step; the old one is still read by clients.
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}

func setDefault[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

func defaultContainer(c *corev1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy is Always for images that name no version: no tag and no digest, or the tag "latest".
func pullPolicy(image string) corev1.PullPolicy {
	name, digest, hasDigest := strings.Cut(image, "@")
	if image == "" || hasDigest && digest != "" {
		if _, tag, ok := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":"); !ok || tag != "latest" {
			return corev1.PullIfNotPresent
		}
		return corev1.PullAlways
	}
	_, tag, ok := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !ok || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	for _, f := range []struct {
		field *int32
		value int32
	}{{&p.TimeoutSeconds, 1}, {&p.PeriodSeconds, 10}, {&p.SuccessThreshold, 1}, {&p.FailureThreshold, 3}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil && p.GRPC.Service == nil {
		p.GRPC.Service = new("")
	}
}

func defaultHTTPGet(g *corev1.HTTPGetAction) {
	if g != nil {
		setDefault(&g.Path, "/")
		setDefault(&g.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		setDefault(&r.APIVersion, "v1")
	}
}

// roundUp makes thousandths the finest unit of quantities.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		if q.RoundUp(resource.Milli) {
			continue
		}
		list[name] = q
	}
}
