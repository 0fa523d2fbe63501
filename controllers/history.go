package controllers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
)

// history keeps the templates of StatefulSets and DaemonSets as ControllerRevisions, which kubectl rollout reads.
type history struct {
	Deps
	access client.Resource[*appsv1.ControllerRevision]
	lister client.TypedLister[*appsv1.ControllerRevision]
}

func newHistory(ctx context.Context, d Deps) *history {
	access := client.For[*appsv1.ControllerRevision](d.Client)
	return &history{Deps: d, access: access, lister: access.Lister(ctx)}
}

// templatePatch is what a revision stores: the template, as a patch of its owner.
func templatePatch(t *corev1.PodTemplateSpec) ([]byte, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	m["$patch"] = "replace"
	// Clients of 1.31 compare the bytes with their own encoding, in which the absent time is null.
	if meta, ok := m["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = nil
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"template": m}})
}

// list returns the revisions of owner, oldest first; matching orphans are adopted.
func (h *history) list(ctx context.Context, owner api.Object, kind schema.GroupVersionKind, selector labels.Selector) ([]*appsv1.ControllerRevision, error) {
	var out []*appsv1.ControllerRevision
	for r := range h.lister.Select(owner.GetNamespace(), selector) {
		ref := metav1.GetControllerOfNoCopy(r)
		if ref == nil && owner.GetDeletionTimestamp() == nil && r.DeletionTimestamp == nil {
			adopted, err := patchOwners(ctx, h.Client, h.access.Kind(), r, append(slices.Clone(r.OwnerReferences), *metav1.NewControllerRef(owner, kind)))
			if err != nil {
				return nil, err
			}
			out = append(out, adopted.(*appsv1.ControllerRevision))
		} else if ref != nil && ref.UID == owner.GetUID() {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// current returns the revision of a template, made or renumbered so that it is the newest. It counts collisions of names.
func (h *history) current(ctx context.Context, owner api.Object, kind schema.GroupVersionKind, t *corev1.PodTemplateSpec, all []*appsv1.ControllerRevision, collisions *int32, hashLabel bool) (*appsv1.ControllerRevision, []*appsv1.ControllerRevision, error) {
	patch, err := templatePatch(t)
	if err != nil {
		return nil, nil, err
	}
	next := int64(1)
	if len(all) > 0 {
		next = all[len(all)-1].Revision + 1
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !bytes.Equal(all[i].Data.Raw, patch) {
			continue
		}
		if i == len(all)-1 {
			return all[i], all, nil
		}
		// An earlier template again: a roll-back.
		newer := all[i].DeepCopy()
		newer.Revision = next
		updated, err := h.access.Update(ctx, newer)
		if err != nil {
			return nil, nil, err
		}
		return updated, append(slices.Delete(slices.Clone(all), i, i+1), updated), nil
	}
	for {
		made, err := h.create(ctx, owner, kind, t, patch, next, *collisions, hashLabel)
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return nil, nil, err
			}
			return made, append(slices.Clone(all), made), nil
		}
		if bytes.Equal(made.Data.Raw, patch) && metav1.IsControlledBy(made, owner) {
			return made, append(slices.Clone(all), made), nil // it had not been seen yet
		}
		*collisions++ // another template has the name
	}
}

// create makes a revision. The name depends on the template and on the collisions so far; when it is taken, create returns
// the revision that has it together with the error.
func (h *history) create(ctx context.Context, owner api.Object, kind schema.GroupVersionKind, t *corev1.PodTemplateSpec, patch []byte, number int64, collisions int32, hashLabel bool) (*appsv1.ControllerRevision, error) {
	f := fnv.New32()
	f.Write(patch)
	if collisions > 0 {
		f.Write([]byte(strconv.Itoa(int(collisions))))
	}
	hash := rand.SafeEncodeString(strconv.FormatUint(uint64(f.Sum32()), 10))
	set := map[string]string{}
	for k, v := range t.Labels {
		set[k] = v
	}
	set["controller.kubernetes.io/hash"] = hash
	if hashLabel {
		set[appsv1.ControllerRevisionHashLabelKey] = hash
	}
	name := owner.GetName() + "-" + hash
	made, err := h.access.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: owner.GetNamespace(), Labels: set, Annotations: owner.GetAnnotations(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Data: runtime.RawExtension{Raw: patch}, Revision: number,
	})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	present, getErr := h.access.Get(ctx, owner.GetNamespace(), name)
	if getErr != nil {
		return nil, getErr
	}
	return present, err
}

// templateOf is the template that a revision stores.
func templateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("read revision %s: %w", r.Name, err)
	}
	return &data.Spec.Template, nil
}

// trim removes the oldest revisions beyond the limit that no pod is of.
func (h *history) trim(ctx context.Context, all []*appsv1.ControllerRevision, limit *int32, live func(*appsv1.ControllerRevision) bool) error {
	var spare []*appsv1.ControllerRevision
	for _, r := range all {
		if !live(r) {
			spare = append(spare, r)
		}
	}
	for _, r := range spare[:max(0, len(spare)-int(ptr.Deref(limit, 10)))] {
		if err := h.access.Delete(ctx, r.Namespace, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
