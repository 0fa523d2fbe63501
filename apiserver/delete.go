package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
	"proa/apiserver/admission"
	"proa/store"
)

func checkDeleteOptions(opts *metav1.DeleteOptions) error {
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return nil
}

// delete removes an object or marks it for removal. It returns the last state and whether the object is gone.
func (s *Server) delete(ctx context.Context, t *target, opts *metav1.DeleteOptions) (*object, bool, error) {
	if err := checkDeleteOptions(opts); err != nil {
		return nil, false, err
	}
	admitted := false
	for round := 0; ; round++ {
		version, old, err := s.current(t.served, t.namespace, t.name)
		if err != nil {
			return nil, false, err
		}
		if !admitted {
			attributes := t.attributes(admission.Delete, nil, old.Object)
			if err := s.admission.Admit(ctx, attributes); err != nil {
				return nil, false, err
			}
			if err := s.admission.Validate(ctx, attributes); err != nil {
				return nil, false, err
			}
			admitted = true
		}
		value, gone, err := s.deleteOnce(ctx, t, opts, version, old)
		if errors.Is(err, store.ErrConflict) {
			if round < maxRounds {
				continue
			}
			err = apierrors.NewConflict(t.gr(), t.name, errors.New(conflictText))
		}
		return value, gone, err
	}
}

func (s *Server) deleteOnce(ctx context.Context, t *target, opts *metav1.DeleteOptions, version *store.Version, old *object) (*object, bool, error) {
	if err := checkPreconditions(t, opts.Preconditions, old.Object); err != nil {
		return nil, false, err
	}
	if ns, ok := old.Object.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return nil, false, apierrors.NewConflict(t.gr(), t.name, errors.New("The system is ensuring all content is removed from this namespace."+
			"  Upon completion, this namespace will automatically be purged by the system."))
	}
	obj := old.DeepCopyObject().(api.Object)
	obj.SetFinalizers(finalizersFor(t, obj.GetFinalizers(), opts))
	var grace int64
	if t.GracePeriod != nil {
		grace = t.GracePeriod(old.Object, opts)
	}
	keep := len(obj.GetFinalizers()) > 0 || len(specFinalizers(obj)) > 0
	if at := old.GetDeletionTimestamp(); at == nil {
		if grace > 0 || keep {
			deadline := metav1.NewTime(now().Add(time.Duration(grace) * time.Second))
			obj.SetDeletionTimestamp(&deadline)
			obj.SetDeletionGracePeriodSeconds(&grace)
			if t.GracePeriod == nil {
				obj.SetDeletionGracePeriodSeconds(new(int64))
			}
			if obj.GetGeneration() > 0 {
				obj.SetGeneration(obj.GetGeneration() + 1)
			}
			if ns, ok := obj.(*corev1.Namespace); ok {
				ns.DeletionGracePeriodSeconds = nil
				ns.Status.Phase = corev1.NamespaceTerminating
			}
		}
	} else if t.GracePeriod != nil {
		pending := old.GetDeletionGracePeriodSeconds()
		switch {
		case pending == nil || *pending == 0:
			grace = 0
		case opts.GracePeriodSeconds == nil && grace > 0, grace >= *pending:
			// The end was announced already; it can only come sooner.
			grace = *pending
		default:
			// The announced end moves by as much as the period was shortened.
			deadline := metav1.NewTime(at.Add(-time.Duration(*pending-grace) * time.Second))
			if grace > 0 || keep {
				obj.SetDeletionTimestamp(&deadline)
				obj.SetDeletionGracePeriodSeconds(&grace)
				if obj.GetGeneration() > 0 {
					obj.SetGeneration(obj.GetGeneration() + 1)
				}
			}
		}
	}
	if grace > 0 || keep {
		if unchanged(t.layout, obj, old.Object) || t.dryRun {
			return s.newValueOr(t, obj, old), false, nil
		}
		value, err := s.commit(ctx, t.served, t.namespace, t.name, obj, version.Revision)
		return value, false, err
	}
	if t.dryRun {
		return old, true, nil
	}
	deletion, err := s.remove(ctx, t.served, t.namespace, t.name, version.Revision)
	if err != nil {
		return nil, false, err
	}
	return s.deleted.at(deletion, version), true, nil
}

func (s *Server) newValueOr(t *target, obj api.Object, old *object) *object {
	if unchanged(t.layout, obj, old.Object) {
		return old
	}
	return s.newValue(t.served, obj)
}

func checkPreconditions(t *target, p *metav1.Preconditions, old api.Object) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != old.GetUID() {
		return apierrors.NewConflict(t.gr(), t.name, fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, old.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
		return apierrors.NewConflict(t.gr(), t.name, fmt.Errorf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, old.GetResourceVersion()))
	}
	return nil
}

// finalizersFor adds and removes the finalizers that stand for what is to happen to the dependents.
func finalizersFor(t *target, finalizers []string, opts *metav1.DeleteOptions) []string {
	var orphan, foreground bool
	switch {
	case opts.PropagationPolicy != nil:
		orphan = *opts.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *opts.PropagationPolicy == metav1.DeletePropagationForeground
	case opts.OrphanDependents != nil:
		orphan = *opts.OrphanDependents
	default:
		// Without a wish, finalizers that are there already decide, then the kind's default.
		orphan = slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
		foreground = slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
		if !orphan && !foreground {
			orphan = t.DefaultOrphan
		}
	}
	out := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
