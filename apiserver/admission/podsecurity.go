package admission

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"proa/api"
	"proa/apiserver/request"
	"proa/client"
)

// PodSecurity holds pods to the Pod Security Standards that the labels of their namespace ask for, warns of workloads whose
// pods would be refused, and of namespaces whose present pods would be.
type PodSecurity struct {
	Pass
	log        *slog.Logger
	evaluator  policy.Evaluator
	namespaces client.TypedLister[*corev1.Namespace]
	pods       client.TypedLister[*corev1.Pod]
}

// podSecurityPods bounds how many pods a change of a namespace's labels looks at.
const podSecurityPods = 3000

// NewPodSecurity returns the plugin. It panics when the library's own checks contradict each other.
func NewPodSecurity(c client.Interface, log *slog.Logger) *PodSecurity {
	version := psa.MajorMinorVersion(1, 31)
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), &version)
	if err != nil {
		panic(fmt.Sprintf("admission: pod security checks: %v", err))
	}
	ctx := context.Background()
	return &PodSecurity{
		log: log, evaluator: evaluator,
		namespaces: client.For[*corev1.Namespace](c).Lister(ctx), pods: client.For[*corev1.Pod](c).Lister(ctx),
	}
}

// Name of the plugin.
func (*PodSecurity) Name() string { return "PodSecurity" }

// unlabelled namespaces allow everything.
func unlabelled() psa.Policy {
	privileged := psa.LevelVersion{Level: psa.LevelPrivileged, Version: psa.LatestVersion()}
	return psa.Policy{Enforce: privileged, Audit: privileged, Warn: privileged}
}

// Validate evaluates pods, workloads and namespaces.
func (p *PodSecurity) Validate(ctx context.Context, a *Attributes) error {
	if a.Operation != Create && a.Operation != Update || a.Object == nil {
		return nil
	}
	switch {
	case on(a, "namespaces", "", Create, Update):
		return p.namespace(ctx, a)
	case on(a, "pods", "", Create), on(a, "pods", "", Update), on(a, "pods", "ephemeralcontainers", Update):
		return p.pod(ctx, a)
	case a.Subresource == "":
		p.workload(ctx, a)
	}
	return nil
}

func (p *PodSecurity) policy(namespace string) (psa.Policy, field.ErrorList) {
	ns, ok := p.namespaces.Get("", namespace)
	if !ok {
		return unlabelled(), nil
	}
	return psa.PolicyToEvaluate(ns.Labels, unlabelled())
}

func (p *PodSecurity) check(lv psa.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) policy.AggregateCheckResult {
	return policy.AggregateCheckResults(p.evaluator.EvaluatePod(lv, meta, spec))
}

func (p *PodSecurity) pod(ctx context.Context, a *Attributes) error {
	pod := a.Object.(*corev1.Pod)
	if old, ok := a.OldObject.(*corev1.Pod); ok && !significant(pod, old) {
		return nil
	}
	levels, errs := p.policy(a.Namespace)
	if len(errs) == 0 && levels.FullyPrivileged() {
		return nil
	}
	if len(errs) > 0 {
		p.log.Debug("pod security labels are invalid", "namespace", a.Namespace, "err", errs.ToAggregate())
	}
	enforced := p.check(levels.Enforce, &pod.ObjectMeta, &pod.Spec)
	if !enforced.Allowed {
		return forbid(a, fmt.Errorf("violates PodSecurity %q: %s", levels.Enforce.String(), enforced.ForbiddenDetail()))
	}
	p.warn(ctx, a, levels, &pod.ObjectMeta, &pod.Spec)
	return nil
}

// warn tells the client of the warn level's violations, and the log of the audit level's.
func (p *PodSecurity) warn(ctx context.Context, a *Attributes, levels psa.Policy, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	if result := p.check(levels.Audit, meta, spec); !result.Allowed {
		p.log.Info("pod security violation", "namespace", a.Namespace, "name", nameOf(a), "resource", a.Resource.Key(),
			"level", levels.Audit.String(), "reasons", result.ForbiddenDetail())
	}
	if result := p.check(levels.Warn, meta, spec); !result.Allowed {
		request.Warn(ctx, fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), result.ForbiddenDetail()))
	}
}

// significant reports whether an update of a pod can change what the checks say. Most of a pod's spec cannot change at all.
func significant(pod, old *corev1.Pod) bool {
	for key, value := range pod.Annotations {
		if (strings.HasPrefix(key, corev1.SeccompPodAnnotationKey) || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) ||
			strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)) && old.Annotations[key] != value {
			return true
		}
	}
	now, before := pod.Spec, old.Spec
	for _, spec := range []*corev1.PodSpec{&now, &before} {
		spec.Tolerations, spec.ActiveDeadlineSeconds, spec.SchedulingGates, spec.NodeSelector, spec.Affinity = nil, nil, nil, nil, nil
	}
	return !equality.Semantic.DeepEqual(now, before)
}

// workload evaluates a pod template: it is never refused, its pods are.
func (p *PodSecurity) workload(ctx context.Context, a *Attributes) {
	meta, spec := template(a.Object)
	if spec == nil {
		return
	}
	if a.OldObject != nil {
		if _, old := template(a.OldObject); old != nil && equality.Semantic.DeepEqual(old, spec) {
			return
		}
	}
	levels, errs := p.policy(a.Namespace)
	if len(errs) == 0 && levels.FullyPrivileged() {
		return
	}
	p.warn(ctx, a, levels, meta, spec)
}

// template of a workload, nil for what has none.
func template(obj api.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	var t *corev1.PodTemplateSpec
	switch w := obj.(type) {
	case *corev1.PodTemplate:
		t = &w.Template
	case *corev1.ReplicationController:
		t = w.Spec.Template
	case *appsv1.ReplicaSet:
		t = &w.Spec.Template
	case *appsv1.Deployment:
		t = &w.Spec.Template
	case *appsv1.StatefulSet:
		t = &w.Spec.Template
	case *appsv1.DaemonSet:
		t = &w.Spec.Template
	case *batchv1.Job:
		t = &w.Spec.Template
	case *batchv1.CronJob:
		t = &w.Spec.JobTemplate.Spec.Template
	}
	if t == nil {
		return nil, nil
	}
	return &t.ObjectMeta, &t.Spec
}

// namespace refuses invalid labels, and warns when a stricter level does not suit the pods that are there.
func (p *PodSecurity) namespace(ctx context.Context, a *Attributes) error {
	ns := a.Object.(*corev1.Namespace)
	next, errs := psa.PolicyToEvaluate(ns.Labels, unlabelled())
	old, update := a.OldObject.(*corev1.Namespace)
	if !update {
		return invalidNamespace(a, errs)
	}
	present, oldErrs := psa.PolicyToEvaluate(old.Labels, unlabelled())
	// Labels that were wrong before do not stand in the way of other changes.
	if len(errs) > 0 && !slices.EqualFunc(errs, oldErrs, func(x, y *field.Error) bool { return x.Error() == y.Error() }) {
		return invalidNamespace(a, errs)
	}
	stricter := psa.CompareLevels(next.Enforce.Level, present.Enforce.Level) >= 0 && !next.Enforce.Equivalent(&present.Enforce)
	if !stricter || next.Enforce.Level == psa.LevelPrivileged {
		return nil
	}
	if lines := p.violations(ns.Name, next.Enforce); len(lines) > 0 {
		request.Warn(ctx, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", ns.Name, next.Enforce.String()))
		for _, line := range lines {
			request.Warn(ctx, line)
		}
	}
	return nil
}

func invalidNamespace(a *Attributes, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.Resource.GroupKind(), a.Object.GetName(), errs)
}

// violations of the pods of a namespace, one line for each set of reasons; the pods of one controller count as one.
func (p *PodSecurity) violations(namespace string, lv psa.LevelVersion) []string {
	type entry struct {
		name  string
		count int
	}
	byReason := map[string]*entry{}
	var order []string
	seen := 0
	controllers := map[string]bool{}
	for pod := range p.pods.All(namespace) {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			if controllers[string(owner.UID)] {
				continue
			}
			controllers[string(owner.UID)] = true
		}
		if seen++; seen > podSecurityPods {
			break
		}
		result := p.check(lv, &pod.ObjectMeta, &pod.Spec)
		if result.Allowed {
			continue
		}
		reason := result.ForbiddenReason()
		if byReason[reason] == nil {
			byReason[reason] = &entry{name: pod.Name}
			order = append(order, reason)
		}
		byReason[reason].count++
	}
	lines := make([]string, 0, len(order))
	for _, reason := range order {
		e := byReason[reason]
		switch others := e.count - 1; others {
		case 0:
			lines = append(lines, e.name+": "+reason)
		case 1:
			lines = append(lines, e.name+" (and 1 other pod): "+reason)
		default:
			lines = append(lines, fmt.Sprintf("%s (and %d other pods): %s", e.name, others, reason))
		}
	}
	slices.Sort(lines)
	return lines
}
