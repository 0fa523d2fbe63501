package apiserver

import (
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"proa/api"
	"proa/apiserver/admission"
	"proa/apiserver/request"
	"proa/store"
)

// generatedNames is how often a generated name is tried anew when it is taken.
const generatedNames = 8

// create makes a private object of the storage version. manage records who manages its fields, unless nil.
func (s *Server) create(ctx context.Context, t *target, obj api.Object, manage func(obj api.Object) (api.Object, error)) (*object, error) {
	if v := obj.GetResourceVersion(); v != "" && v != "0" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	switch {
	case t.Namespaced && obj.GetNamespace() == "":
		obj.SetNamespace(t.namespace)
	case obj.GetNamespace() != t.namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetResourceVersion("")
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(now())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if t.HasStatus() && !t.KeepsStatusOnCreate {
		t.layout.clearStatus(obj)
	}
	if obj.SetGeneration(0); t.HasGeneration {
		obj.SetGeneration(1)
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		prepareNamespace(ns)
	}
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	if generated {
		obj.SetName(generateName(obj.GetGenerateName()))
	}
	if manage != nil {
		var err error
		if obj, err = manage(obj); err != nil {
			return nil, err
		}
	}
	t.name = obj.GetName()
	attributes := t.attributes(admission.Create, obj, nil)
	if err := s.admission.Admit(ctx, attributes); err != nil {
		return nil, err
	}
	obj = attributes.Object
	// What follows from the spec, as the quality of service class of a pod, follows from what admission has made of it.
	if t.PrepareCreate != nil {
		t.PrepareCreate(obj)
	}
	if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
		setRequestor(csr, t.user)
	}
	var err error
	if s.services.concerns(t.served) {
		var release func(committed bool)
		if release, err = s.services.create(obj, t.dryRun); err != nil {
			return nil, err
		}
		defer func() { release(err == nil && !t.dryRun) }()
	}
	errs := checkMeta(t.served, obj)
	if t.Validate != nil {
		errs = append(errs, t.Validate(obj)...)
	}
	if err = invalid(t.served, obj.GetName(), errs); err != nil {
		return nil, err
	}
	if err = s.admission.Validate(ctx, attributes); err != nil {
		return nil, err
	}
	if t.Warnings != nil {
		for _, text := range t.Warnings(obj, nil) {
			request.Warn(ctx, text)
		}
	}
	if t.dryRun {
		if _, taken := s.store.Snapshot().Get(t.key(t.namespace, obj.GetName())); taken {
			err = s.taken(t, obj.GetName())
			return nil, err
		}
		return s.newValue(t.served, obj), nil
	}
	var value *object
	for try := 1; ; try++ {
		value, err = s.commit(ctx, t.served, t.namespace, obj.GetName(), obj, store.Absent)
		if !errors.Is(err, store.ErrConflict) {
			return value, err
		}
		if !generated || try == generatedNames {
			err = s.taken(t, obj.GetName())
			return nil, err
		}
		obj.SetName(generateName(obj.GetGenerateName()))
	}
}

// taken is the error of a create whose name another object has; clients tell by it whether that one is about to go.
func (s *Server) taken(t *target, name string) error {
	err := apierrors.NewAlreadyExists(t.gr(), name)
	if v, ok := s.store.Snapshot().Get(t.key(t.namespace, name)); ok && v.Value.(*object).GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// generateName appends five random letters to a prefix, cut so that the whole fits a label.
func generateName(prefix string) string {
	return prefix[:min(len(prefix), 58)] + utilrand.String(5)
}

// unchanged reports whether an update changes nothing but times of managed fields, so that it need not be stored. Status
// and managed fields come first: they tell most changes.
func unchanged(l *layout, obj, old api.Object) bool {
	if !l.sameStatus(obj, old) || !slices.EqualFunc(obj.GetManagedFields(), old.GetManagedFields(), sameManager) {
		return false
	}
	if _, general := obj.(runtime.Unstructured); !general {
		obj, old = shallow(obj), shallow(old)
		obj.SetManagedFields(nil)
		old.SetManagedFields(nil)
	}
	return apiequality.Semantic.DeepEqual(obj, old)
}

// sameManager compares all but the times: who applies "0.5" to a stored "500m" again has changed nothing but the time.
func sameManager(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && a.Subresource == b.Subresource &&
		a.FieldsType == b.FieldsType && (a.FieldsV1 == nil) == (b.FieldsV1 == nil) &&
		(a.FieldsV1 == nil || a.FieldsV1.Equal(*b.FieldsV1))
}

// setRequestor notes who asks for a certificate, whatever the request says of that.
func setRequestor(csr *certificatesv1.CertificateSigningRequest, user *request.User) {
	spec := &csr.Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	if user == nil {
		return
	}
	spec.Username, spec.UID, spec.Groups = user.Name, user.UID, user.Groups
	for k, v := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[k] = v
	}
}
