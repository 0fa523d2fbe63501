package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/client"
	"proa/internal/quota"
)

// ResourceQuota lets a namespace use no more than its quotas allow. It charges what a request would use to the status of
// each quota before the request is carried out, one request of a namespace after the other; the quota controller corrects
// the charge when the request comes to nothing or the object goes away.
type ResourceQuota struct {
	Pass
	client client.Interface
	quotas client.TypedLister[*corev1.ResourceQuota]

	seed maphash.Seed
	// locks hold one namespace each, or several that share a lock.
	locks [64]sync.Mutex
}

// quotaRetries bounds how often a charge is made anew when a quota changes meanwhile.
const quotaRetries = 10

// NewResourceQuota returns the plugin.
func NewResourceQuota(c client.Interface) *ResourceQuota {
	return &ResourceQuota{
		client: c, quotas: client.For[*corev1.ResourceQuota](c).Lister(context.Background()), seed: maphash.MakeSeed(),
	}
}

// Name of the plugin.
func (*ResourceQuota) Name() string { return "ResourceQuota" }

// Validate charges creates, and updates that grow.
func (p *ResourceQuota) Validate(ctx context.Context, a *Attributes) error {
	if a.Namespace == "" || a.Object == nil || !p.charges(a) || !p.concerned(a) {
		return nil
	}
	lock := &p.locks[maphash.String(p.seed, a.Namespace)%uint64(len(p.locks))]
	lock.Lock()
	defer lock.Unlock()
	var done map[string]bool
	for range quotaRetries {
		charged, err := p.charge(ctx, a, done)
		if err == nil || !apierrors.IsConflict(err) {
			return err
		}
		done = charged
	}
	return apierrors.NewConflict(a.Resource.GroupResource(), nameOf(a), errors.New("the quota of the namespace keeps changing; please try again"))
}

func (p *ResourceQuota) charges(a *Attributes) bool {
	switch {
	case a.Operation == Create:
		return a.Subresource == ""
	case a.Operation != Update || a.Resource.Group != "":
		return false
	case a.Resource.Plural == "services", a.Resource.Plural == "persistentvolumeclaims":
		return a.Subresource == ""
	case a.Resource.Plural == "pods":
		return a.Subresource == "resize"
	}
	return false
}

// concerned reports whether any quota of the namespace counts the kind, without taking the lock.
func (p *ResourceQuota) concerned(a *Attributes) bool {
	for q := range p.quotas.All(a.Namespace) {
		if quota.Counted(a.Resource.GroupResource(), q.Spec.Hard) {
			return true
		}
	}
	return false
}

// charge adds the request to every quota it falls under that is not in done. On a conflict it returns the ones done.
func (p *ResourceQuota) charge(ctx context.Context, a *Attributes, done map[string]bool) (map[string]bool, error) {
	gr, now := a.Resource.GroupResource(), time.Now()
	usage := quota.Usage(gr, a.Object, now)
	var before corev1.ResourceList
	if a.OldObject != nil {
		before = quota.Usage(gr, a.OldObject, now)
	}
	var updates []*corev1.ResourceQuota
	for q := range p.quotas.All(a.Namespace) {
		if done[q.Name] || !quota.Matches(q, gr, a.Object) {
			continue
		}
		if pod, ok := a.Object.(*corev1.Pod); ok && a.Operation == Create {
			if missing := quota.Missing(q.Spec.Hard, pod); len(missing) > 0 {
				return done, forbid(a, fmt.Errorf("failed quota: %s: must specify %s", q.Name, missingText(missing)))
			}
		}
		delta := usage
		// A quota that the old object did not fall under is charged in full.
		if before != nil && quota.Matches(q, gr, a.OldObject) {
			delta = grown(usage, before)
		}
		update, err := add(a, q, delta)
		if err != nil {
			return done, err
		}
		if update != nil {
			updates = append(updates, update)
		}
	}
	if a.DryRun {
		return done, nil
	}
	// Nothing is charged before every quota has agreed.
	charged := maps.Clone(done)
	if charged == nil {
		charged = map[string]bool{}
	}
	for _, update := range updates {
		_, err := client.For[*corev1.ResourceQuota](p.client).UpdateStatus(ctx, update)
		switch {
		case apierrors.IsNotFound(err): // the quota is gone and with it the limit
		case err != nil:
			return charged, err
		}
		charged[update.Name] = true
	}
	return charged, nil
}

// add returns the quota with the request in its status, nil when that changes nothing, or why it does not fit.
func add(a *Attributes, q *corev1.ResourceQuota, delta corev1.ResourceList) (*corev1.ResourceQuota, error) {
	var unknown []string
	next := q.DeepCopy()
	requested, used, limited := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	changed := false
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		amount, ok := delta[name]
		if !ok || !quota.Concerns(a.Resource.GroupResource(), name) {
			continue
		}
		hard, hasHard := q.Status.Hard[name]
		have, hasUsed := q.Status.Used[name]
		if !hasHard || !hasUsed {
			unknown = append(unknown, string(name))
			continue
		}
		if amount.Sign() <= 0 {
			continue
		}
		total := have.DeepCopy()
		total.Add(amount)
		if total.Cmp(hard) > 0 {
			requested[name], used[name], limited[name] = amount, have, hard
			continue
		}
		next.Status.Used[name] = total
		changed = true
	}
	if len(unknown) > 0 {
		return nil, forbid(a, fmt.Errorf("status unknown for quota: %s, resources: %s", q.Name, strings.Join(unknown, ",")))
	}
	if len(requested) > 0 {
		return nil, forbid(a, fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			q.Name, listText(requested), listText(used), listText(limited)))
	}
	if !changed {
		return nil, nil
	}
	return next, nil
}

// grown is what usage has more than before.
func grown(usage, before corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range usage {
		more := amount.DeepCopy()
		more.Sub(before[name])
		if more.Sign() > 0 {
			out[name] = more
		}
	}
	return out
}

func listText(list corev1.ResourceList) string {
	parts := make([]string, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

func missingText(missing map[corev1.ResourceName][]string) string {
	parts := make([]string, 0, len(missing))
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		parts = append(parts, string(name)+" for: "+strings.Join(missing[name], ","))
	}
	return strings.Join(parts, "; ")
}
