package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/apiserver/admission"
	"proa/apiserver/request"
	"proa/store"
)

// target says what a write is about and on whose behalf.
type target struct {
	*served
	namespace, name, subresource string
	user                         *request.User
	// manager is the field manager: the one asked for or the first word of the user agent.
	manager string
	dryRun  bool
	// options as given, for admission.
	options runtime.Object
}

func (t *target) attributes(op admission.Operation, obj, old api.Object) *admission.Attributes {
	return &admission.Attributes{
		Operation: op, Resource: t.Resource, Subresource: t.subresource, Namespace: t.namespace, Name: t.name,
		Object: obj, OldObject: old, Options: t.options, DryRun: t.dryRun, User: t.user,
	}
}

// current is the newest version of an object.
func (s *Server) current(v *served, namespace, name string) (*store.Version, *object, error) {
	version, ok := s.store.Snapshot().Get(v.key(namespace, name))
	if !ok {
		return nil, nil, apierrors.NewNotFound(v.gr(), name)
	}
	return version, version.Value.(*object), nil
}

// gr is the group and resource as error messages of this version name it.
func (v *served) gr() schema.GroupResource {
	return schema.GroupResource{Group: v.gvk.Group, Resource: v.Plural}
}

// commit stores a private object that has passed everything. Events and node heartbeats need not wait for the disk.
func (s *Server) commit(ctx context.Context, v *served, namespace, name string, obj api.Object, expect int64) (*object, error) {
	obj.SetResourceVersion("")
	s.fieldSets.share(obj)
	value := s.newValue(v, obj)
	write := store.Write{Key: v.key(namespace, name), Value: value, Expect: expect}
	commit := s.store.Commit
	if v.relaxed(namespace) {
		commit = s.store.CommitRelaxed
	}
	versions, err := commit(ctx, write)
	if err != nil {
		s.encodings.seals.forget(value)
		return nil, s.storeError(err)
	}
	s.encodings.seals.replaced(versions...)
	return value, nil
}

// relaxed reports whether a kind's writes may be acknowledged before they are durable.
func (v *served) relaxed(namespace string) bool {
	return v.prefix == "core/events/" || v.prefix == "coordination.k8s.io/leases/" && namespace == "kube-node-lease"
}

func (s *Server) storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, store.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
	}
	return apierrors.NewInternalError(err)
}

// checkMeta validates object metadata, with the name rules of the kind.
func checkMeta(v *served, obj api.Object) field.ErrorList {
	name := v.ValidateName
	if name == nil {
		name = apivalidation.NameIsDNSSubdomain
	}
	return apivalidation.ValidateObjectMetaAccessor(obj, v.Namespaced, name, field.NewPath("metadata"))
}

func invalid(v *served, name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	for _, e := range errs {
		// The library says it in words newer than 1.31's, which people look for.
		if limit, ok := strings.CutPrefix(e.Detail, "may not be more than "); ok && e.Type == field.ErrorTypeTooLong {
			e.Detail = "must have at most " + limit
		}
	}
	return apierrors.NewInvalid(v.GroupKind(), name, errs)
}

// replace is the common part of update, patch and apply: it reads the object, lets change make the new one from it, and
// commits that. change gets a shared object, nil when the object does not exist and may be created.
type replace struct {
	target
	// change returns a private object of the storage version.
	change func(old api.Object) (api.Object, error)
	// verb of the operation that managed fields record; manage does it, nil leaves them alone.
	manage func(old, obj api.Object) (api.Object, error)
	// createMissing makes an object that does not exist.
	createMissing func() (*object, bool, error)
	// retry allows another round when somebody else was faster: nothing in the request depends on the version.
	retry bool
	// keepsUID makes another UID an invalid change, not a precondition that fails.
	keepsUID bool
	// own replaces the rules of update, for subresources with their own.
	prepare  func(obj, old api.Object)
	validate func(obj, old api.Object) field.ErrorList
}

const conflictText = "the object has been modified; please apply your changes to the latest version and try again"

// maxRounds bounds the retries of one write.
const maxRounds = 30

// run returns the object as committed, and whether it was created.
func (s *Server) replace(ctx context.Context, r *replace) (*object, bool, error) {
	for round := 0; ; round++ {
		version, old, err := s.current(r.served, r.namespace, r.name)
		if err != nil {
			if r.createMissing == nil {
				return nil, false, err
			}
			created, isNew, err := r.createMissing()
			if apierrors.IsAlreadyExists(err) && r.retry && round < maxRounds {
				continue
			}
			return created, isNew, err
		}
		value, err := s.replaceOnce(ctx, r, version, old)
		if errors.Is(err, store.ErrConflict) {
			if err := ctx.Err(); err != nil {
				return nil, false, err
			}
			if r.retry && round < maxRounds {
				continue
			}
			var conflict *store.ConflictError
			if errors.As(err, &conflict) && conflict.Current == nil && !r.retry {
				return nil, false, apierrors.NewNotFound(r.gr(), r.name)
			}
			err = apierrors.NewConflict(r.gr(), r.name, errors.New(conflictText))
		}
		return value, false, err
	}
}

func (s *Server) replaceOnce(ctx context.Context, r *replace, version *store.Version, old *object) (*object, error) {
	obj, err := r.change(old.Object)
	if err != nil {
		return nil, err
	}
	if given := obj.GetResourceVersion(); given == "" || given == "0" {
		if r.DisallowUnconditionalUpdate && !r.retry {
			return nil, invalid(r.served, r.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
		}
	} else if given != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.gr(), r.name, errors.New(conflictText))
	}
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		if r.keepsUID {
			return nil, invalid(r.served, r.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), uid, apivalidation.FieldImmutableErrorMsg)})
		}
		return nil, apierrors.NewConflict(r.gr(), r.name, fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID()))
	}
	s.prepareUpdate(&r.target, obj, old.Object, r.prepare)
	attributes := r.attributes(admission.Update, obj, old.Object)
	if r.manage != nil {
		if obj, err = r.manage(old.Object, obj); err != nil {
			return nil, err
		}
		attributes.Object = obj
	}
	if err := s.admission.Admit(ctx, attributes); err != nil {
		return nil, err
	}
	obj = attributes.Object
	obj.SetResourceVersion(old.GetResourceVersion())
	var release func(committed bool)
	if r.subresource == "" && s.services.concerns(r.served) {
		if release, err = s.services.update(obj, old.Object, r.dryRun); err != nil {
			return nil, err
		}
		defer func() { release(err == nil && !r.dryRun) }()
	}
	errs := checkMeta(r.served, obj)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(obj, old.Object, field.NewPath("metadata"))...)
	switch {
	case r.validate != nil:
		errs = append(errs, r.validate(obj, old.Object)...)
	case r.subresource == "" && r.ValidateUpdate != nil:
		errs = append(errs, r.ValidateUpdate(obj, old.Object)...)
	case r.subresource == "" && r.Validate != nil:
		errs = append(errs, r.Validate(obj)...)
	case r.subresource == "status" && r.ValidateStatusUpdate != nil:
		errs = append(errs, r.ValidateStatusUpdate(obj, old.Object)...)
	}
	if err = invalid(r.served, r.name, errs); err != nil {
		return nil, err
	}
	if err = s.admission.Validate(ctx, attributes); err != nil {
		return nil, err
	}
	if r.subresource == "" && r.Warnings != nil {
		for _, text := range r.Warnings(obj, old.Object) {
			request.Warn(ctx, text)
		}
	}
	if deletable(obj) {
		if r.dryRun {
			return s.newValue(r.served, obj), nil
		}
		var deletion *store.Version
		if deletion, err = s.remove(ctx, r.served, r.namespace, r.name, version.Revision); err != nil {
			return nil, err
		}
		obj.SetResourceVersion(fmt.Sprint(deletion.Revision))
		return s.newValue(r.served, obj), nil
	}
	if unchanged(r.layout, obj, old.Object) {
		return old, nil
	}
	if r.dryRun {
		return s.newValue(r.served, obj), nil
	}
	var value *object
	value, err = s.commit(ctx, r.served, r.namespace, r.name, obj, version.Revision)
	return value, err
}

// prepareUpdate takes from old what clients may not change here.
func (s *Server) prepareUpdate(t *target, obj, old api.Object, prepare func(obj, old api.Object)) {
	obj.SetName(old.GetName())
	obj.SetNamespace(old.GetNamespace())
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetGenerateName(old.GetGenerateName())
	obj.SetSelfLink("")
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetGeneration(old.GetGeneration())
	switch {
	case prepare != nil:
		prepare(obj, old)
	case t.subresource == "":
		if t.HasStatus() {
			t.layout.keepStatus(obj, old)
		}
		if t.PrepareUpdate != nil {
			t.PrepareUpdate(obj, old)
		}
	case t.subresource == "status":
		t.layout.keepRest(obj, old)
		if t.PrepareStatusUpdate != nil {
			t.PrepareStatusUpdate(obj, old)
		}
	}
	if t.HasGeneration && !t.layout.sameRest(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// deletable reports whether an object that is being deleted has nothing left to wait for.
func deletable(obj api.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 || len(specFinalizers(obj)) > 0 {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// remove deletes the key if it is at the revision.
func (s *Server) remove(ctx context.Context, v *served, namespace, name string, expect int64) (*store.Version, error) {
	versions, err := s.store.Commit(ctx, store.Write{Key: v.key(namespace, name), Expect: expect})
	if err != nil {
		return nil, s.storeError(err)
	}
	s.encodings.seals.replaced(versions...)
	if s.services.concerns(v) && versions[0].Prev != nil {
		s.services.released(versions[0].Prev.Value.(*object).Object)
	}
	return versions[0], nil
}

// now is the present in the precision of the API.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }
