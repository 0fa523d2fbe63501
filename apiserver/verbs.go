package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"proa/api"
	"proa/apiserver/request"
)

// target of the request's write.
func (x *exchange) target(manager string, dryRun []string, options runtime.Object) target {
	return target{
		served: x.v, namespace: x.namespace, name: x.info.Name, subresource: x.info.Subresource, user: x.user,
		manager: managerName(manager, x.r.UserAgent()), dryRun: len(dryRun) > 0, options: options,
	}
}

// badOptions reports what is wrong with options.
func badOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (x *exchange) create() error {
	var opts metav1.CreateOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	if err := badOptions("CreateOptions", validation.ValidateCreateOptions(&opts)); err != nil {
		return err
	}
	obj, err := x.decodeBody(validationOf(opts.FieldValidation))
	if err != nil {
		return err
	}
	t := x.target(opts.FieldManager, opts.DryRun, &opts)
	o, err := x.s.create(x.r.Context(), &t, obj, x.s.manageCreate(&t))
	if err != nil {
		return err
	}
	return x.writeObject(http.StatusCreated, o)
}

// checkName compares the body with the URL.
func (t *target) checkName(obj metav1.Object) error {
	switch name, namespace := obj.GetName(), obj.GetNamespace(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", t.name))
	case name != t.name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, t.name))
	case namespace != "" && namespace != t.namespace:
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", namespace, t.namespace))
	}
	obj.SetNamespace(t.namespace)
	return nil
}

func (x *exchange) update() error {
	var opts metav1.UpdateOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	if err := badOptions("UpdateOptions", validation.ValidateUpdateOptions(&opts)); err != nil {
		return err
	}
	obj, err := x.decodeBody(validationOf(opts.FieldValidation))
	if err != nil {
		return err
	}
	t := x.target(opts.FieldManager, opts.DryRun, &opts)
	o, created, err := x.s.update(x.r.Context(), &t, obj)
	if err != nil {
		return err
	}
	return x.writeObject(createdCode(created), o)
}

func createdCode(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// update replaces an object by a private one of the storage version, through t's subresource.
func (s *Server) update(ctx context.Context, t *target, obj api.Object) (*object, bool, error) {
	if err := t.checkName(obj); err != nil {
		return nil, false, err
	}
	given := obj.GetResourceVersion()
	r := &replace{
		target: *t, manage: s.manage(t), retry: given == "" || given == "0",
	}
	if r.retry && t.DisallowUnconditionalUpdate {
		r.retry = false
	}
	r.change = func(api.Object) (api.Object, error) {
		if !r.retry {
			return obj, nil // there is only this one round
		}
		return obj.DeepCopyObject().(api.Object), nil
	}
	if err := s.rulesOf(r); err != nil {
		return nil, false, err
	}
	if t.CreateOnUpdate && t.subresource == "" && given == "" {
		r.createMissing = func() (*object, bool, error) {
			o, err := s.create(ctx, t, obj.DeepCopyObject().(api.Object), s.manageCreate(t))
			return o, true, err
		}
	}
	return s.replace(ctx, r)
}

func (x *exchange) delete() error {
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	x.warnOrphans(opts)
	t := x.target("", opts.DryRun, opts)
	o, gone, err := x.s.delete(x.r.Context(), &t, opts)
	if err != nil {
		return err
	}
	if gone && !returnsDeleted(x.v.Resource) {
		status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
			Name: x.info.Name, Group: x.v.gvk.Group, Kind: x.v.Plural, UID: o.GetUID(),
		}}
		return x.s.writeAny(x.w, x.r, http.StatusOK, statusKind, status)
	}
	code := http.StatusOK
	// Clients that asked to wait for dependents are told that it takes a while.
	if !gone && (opts.OrphanDependents != nil && !*opts.OrphanDependents ||
		opts.PropagationPolicy != nil && *opts.PropagationPolicy == metav1.DeletePropagationForeground) {
		code = http.StatusAccepted
	}
	return x.writeObject(code, o)
}

// warnOrphans tells who deletes Jobs without a word about their pods that these stay.
func (x *exchange) warnOrphans(opts *metav1.DeleteOptions) {
	if x.v.Group == "batch" && x.v.DefaultOrphan && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		request.Warn(x.r.Context(), "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "+
			"set propagationPolicy=Orphan to suppress this warning")
	}
}

// returnsDeleted names the kinds whose delete answers with the object.
func returnsDeleted(r *api.Resource) bool {
	if r.Group != "" {
		return false
	}
	switch r.Plural {
	case "pods", "persistentvolumeclaims", "persistentvolumes", "podtemplates", "serviceaccounts", "resourcequotas":
		return true
	}
	return false
}

// deleteOptions come in the body or in the query.
func (x *exchange) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	data, err := readBody(x.r)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return opts, x.s.decodeOptions(withoutListOptions(x.r.URL.Query()), opts)
	}
	encoding, err := bodyEncoding(x.r)
	if err != nil {
		return nil, err
	}
	// Options may say that they are of any group version; their form is always the same.
	gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if encoding == asProtobuf {
		body, _, err := openEnvelope(data)
		if err == nil {
			err = opts.Unmarshal(body)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else {
		if encoding == asYAML {
			if data, err = yaml.YAMLToJSON(data); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		if _, err := decodeJSON(data, opts, metav1.FieldValidationIgnore); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("DeleteOptions cannot be decoded: %v", err))
		}
		if opts.Kind != "" && opts.Kind != gvk.Kind {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s cannot be handled as DeleteOptions", opts.Kind))
		}
	}
	opts.TypeMeta = metav1.TypeMeta{}
	return opts, nil
}

func withoutListOptions(q url.Values) url.Values {
	q.Del("fieldSelector")
	q.Del("labelSelector")
	return q
}

func (x *exchange) deleteCollection() error {
	var list metav1.ListOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &list); err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	x.warnOrphans(opts)
	t := x.target("", opts.DryRun, opts)
	t.name = ""
	p, err := x.s.deleteCollection(x.r.Context(), &t, opts, &list)
	if err != nil {
		return err
	}
	f, ok := negotiate(x.r, false)
	if !ok {
		return notAcceptable(typeJSON, typeYAML, typeProtobuf)
	}
	return x.writeList(f, p)
}

// deletionsAtOnce is how many objects of a collection are deleted at the same time.
const deletionsAtOnce = 16

// deleteCollection deletes everything that the options select and returns what that was.
func (s *Server) deleteCollection(ctx context.Context, t *target, opts *metav1.DeleteOptions, list *metav1.ListOptions) (*page, error) {
	sel, err := parseSelector(t.served, list.LabelSelector, list.FieldSelector)
	if err != nil {
		return nil, err
	}
	p, err := s.list(ctx, t.served, t.namespace, sel, list)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	limit := make(chan struct{}, deletionsAtOnce)
	failures := make([]error, len(p.objects))
	for i, o := range p.objects {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			one := *t
			one.namespace, one.name = o.GetNamespace(), o.GetName()
			wanted := opts.DeepCopy()
			_, _, err := s.delete(ctx, &one, wanted)
			if !apierrors.IsNotFound(err) {
				failures[i] = err
			}
		})
	}
	wg.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// post answers a create with rules of its own.
func (x *exchange) post(p request.Poster) error {
	if f, ok := negotiate(x.r, false); !ok || f.view != whole {
		return notAcceptable(typeJSON, typeYAML, typeProtobuf) // an answer of this kind is no object that a table could show
	}
	encoding, err := bodyEncoding(x.r)
	if err != nil {
		return err
	}
	data, err := readBody(x.r)
	if err != nil {
		return err
	}
	var opts metav1.CreateOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	if err := badOptions("CreateOptions", validation.ValidateCreateOptions(&opts)); err != nil {
		return err
	}
	gvk := x.v.gvk
	if sub, ok := x.v.Subresource(x.info.Subresource); ok && sub.Kind.Kind != "" {
		gvk = sub.Kind
	}
	body, err := x.s.scheme.New(gvk)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	how := validationOf(opts.FieldValidation)
	strict, err := decodeInto(data, encoding, body, gvk, how)
	if err != nil {
		return err
	}
	if err := complain(func(text string) { request.Warn(x.r.Context(), text) }, strict, how); err != nil {
		return err
	}
	t := x.target(opts.FieldManager, opts.DryRun, &opts)
	answer, err := x.s.post(x.r.Context(), &t, p, body)
	if err != nil {
		return err
	}
	if kind := answer.GetObjectKind().GroupVersionKind(); kind.Kind != "" {
		gvk = kind
	} else if _, ok := answer.(*metav1.Status); ok {
		gvk = statusKind
	}
	return x.s.writeAny(x.w, x.r, http.StatusCreated, gvk, answer)
}

var errNoPost = errors.New("no handler for the subresource")
