package apiserver

import (
	"context"
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/certificates"
	"proa/api/core"
	"proa/apiserver/admission"
	"proa/apiserver/request"
)

// sub carries out a request for a subresource that the server itself knows.
func (x *exchange) sub() error {
	sub, _ := x.v.Subresource(x.info.Subresource)
	allowed := false
	for _, verb := range sub.Verbs {
		allowed = allowed || verb == x.info.Verb
	}
	if !allowed {
		return methodNotAllowed()
	}
	if sub.Scale != nil {
		return x.scale(sub.Scale)
	}
	switch x.info.Verb {
	case "get":
		return x.get()
	case "update":
		return x.update()
	case "patch":
		return x.patch()
	}
	return methodNotAllowed()
}

// rulesOf sets the rules of r's subresource.
func (s *Server) rulesOf(r *replace) error {
	switch r.subresource {
	case "", "status":
	case "ephemeralcontainers":
		r.prepare = func(obj, old api.Object) {
			core.PrepareEphemeralContainersUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
		}
		r.validate = func(obj, old api.Object) field.ErrorList {
			return core.ValidateEphemeralContainersUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
		}
	case "finalize":
		r.prepare, r.validate = finalizeNamespace()
	case "approval":
		r.prepare, r.validate = approveRequest()
	default:
		return methodNotAllowed()
	}
	return nil
}

// approveRequest are the rules of approval: only the conditions of a signing request change.
func approveRequest() (prepare func(obj, old api.Object), validate func(obj, old api.Object) field.ErrorList) {
	prepare = func(obj, old api.Object) {
		csr := obj.(*certificatesv1.CertificateSigningRequest)
		certificates.PrepareApproval(csr, old.(*certificatesv1.CertificateSigningRequest))
		for i := range csr.Status.Conditions {
			c := &csr.Status.Conditions[i]
			if c.LastUpdateTime.IsZero() {
				c.LastUpdateTime = now()
			}
			if c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = now()
			}
		}
	}
	return prepare, func(obj, old api.Object) field.ErrorList {
		return certificates.ValidateApproval(obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest))
	}
}

// scaleOf shows an object's scale.
func scaleOf(s *api.Scale, obj api.Object) *autoscalingv1.Scale {
	spec, status, selector := s.Get(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: spec},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: selector},
	}
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

func (x *exchange) scale(rules *api.Scale) error {
	if x.info.Verb == "get" {
		_, o, err := x.s.current(x.v, x.namespace, x.info.Name)
		if err != nil {
			return err
		}
		return x.s.writeAny(x.w, x.r, http.StatusOK, scaleKind, scaleOf(rules, o.Object))
	}
	data, err := readBody(x.r)
	if err != nil {
		return err
	}
	var change func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error)
	var dryRun []string
	var manager string
	warn := func(text string) { request.Warn(x.r.Context(), text) }
	if x.info.Verb == "update" {
		encoding, err := bodyEncoding(x.r)
		if err != nil {
			return err
		}
		var opts metav1.UpdateOptions
		if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
			return err
		}
		if err := badOptions("UpdateOptions", validation.ValidateUpdateOptions(&opts)); err != nil {
			return err
		}
		dryRun, manager = opts.DryRun, opts.FieldManager
		wanted := &autoscalingv1.Scale{}
		how := validationOf(opts.FieldValidation)
		strict, err := decodeInto(data, encoding, wanted, scaleKind, how)
		if err != nil {
			return err
		}
		if err := complain(warn, strict, how); err != nil {
			return err
		}
		change = func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return wanted, nil }
	} else {
		var opts metav1.PatchOptions
		if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
			return err
		}
		kind := patchType(x.r.Header.Get("Content-Type"))
		if err := badOptions("PatchOptions", validation.ValidatePatchOptions(&opts, kind)); err != nil {
			return err
		}
		dryRun, manager = opts.DryRun, opts.FieldManager
		if change, err = scalePatch(kind, data, validationOf(opts.FieldValidation), warn); err != nil {
			return err
		}
	}
	t := x.target(manager, dryRun, nil)
	o, err := x.s.setScale(x.r.Context(), &t, rules, change)
	if err != nil {
		return err
	}
	return x.s.writeAny(x.w, x.r, http.StatusOK, scaleKind, scaleOf(rules, o.Object))
}

// setScale changes the replicas of an object.
func (s *Server) setScale(ctx context.Context, t *target, rules *api.Scale, change func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error)) (*object, error) {
	main := *t
	main.subresource = ""
	r := &replace{target: main, retry: true, manage: s.manage(t)}
	r.change = func(old api.Object) (api.Object, error) {
		scale, err := change(scaleOf(rules, old))
		if err != nil {
			return nil, err
		}
		if err := t.checkName(scale); err != nil {
			return nil, err
		}
		if scale.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(scaleKind.GroupKind(), t.name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")})
		}
		obj := old.DeepCopyObject().(api.Object)
		rules.Set(obj, scale.Spec.Replicas)
		if scale.ResourceVersion != "" {
			r.retry = false
			obj.SetResourceVersion(scale.ResourceVersion)
		}
		if scale.UID != "" {
			obj.SetUID(scale.UID)
		}
		return obj, nil
	}
	o, _, err := s.replace(ctx, r)
	return o, err
}

// bind answers pods/binding and the older bindings: it puts a pod on a node.
func (s *Server) bind(ctx context.Context, p request.Post) (runtime.Object, error) {
	b, ok := p.Body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Binding, got %T", p.Body))
	}
	name := p.Name
	if name == "" {
		name = b.Name
	}
	if b.Name != "" && b.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := core.ValidateBinding(b); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	v := s.lookup("", "v1", "pods")
	t := target{served: v, namespace: p.Namespace, name: name, user: p.User, manager: "scheduler", dryRun: p.DryRun}
	r := &replace{target: t, retry: true}
	r.prepare = func(api.Object, api.Object) {}
	r.validate = func(api.Object, api.Object) field.ErrorList { return nil }
	r.subresource = "binding"
	r.change = func(old api.Object) (api.Object, error) {
		if b.UID != "" && b.UID != old.GetUID() {
			return nil, apierrors.NewConflict(v.gr(), name, fmt.Errorf(
				"Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, old.GetUID()))
		}
		pod := old.DeepCopyObject().(*corev1.Pod)
		if err := core.Bind(pod, b, now()); err != nil {
			return nil, apierrors.NewConflict(schemaResource("pods/binding"), name, err)
		}
		return pod, nil
	}
	if _, _, err := s.replace(ctx, r); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, nil
}

// post admits a body and lets a poster answer.
func (s *Server) post(ctx context.Context, t *target, p request.Poster, body runtime.Object) (runtime.Object, error) {
	a := t.attributes(admission.Create, nil, nil)
	a.Body = body
	if err := s.admission.Admit(ctx, a); err != nil {
		return nil, err
	}
	if err := s.admission.Validate(ctx, a); err != nil {
		return nil, err
	}
	return p(ctx, request.Post{
		Client: s.Client(&request.User{Name: "system:apiserver", Groups: []string{request.Masters, request.AllAuthenticated}}, t.manager),
		User:   t.user, Namespace: t.namespace, Name: t.name, Body: body, DryRun: t.dryRun,
	})
}

func nameSelector(name string) fields.Selector {
	return fields.OneTermEqualSelector("metadata.name", name)
}
