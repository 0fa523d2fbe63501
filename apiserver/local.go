package apiserver

import (
	"context"
	"fmt"
	"iter"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/apiserver/request"
	"proa/client"
)

// local is the client of the server's own process: reads share the committed objects, writes go the way of HTTP requests
// but for credentials and permission.
type local struct {
	s     *Server
	user  *request.User
	agent string
}

// Client returns access to the API as user, for components of this process.
func (s *Server) Client(user *request.User, userAgent string) client.Interface {
	return &local{s, user, userAgent}
}

func (l *local) Table() *api.Table { return l.s.table }

func (l *local) target(r *api.Resource, namespace, name, subresource, manager string, dryRun []string, options runtime.Object) (*target, error) {
	v := l.s.servedFor(r)
	if v == nil {
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
	if !r.Namespaced {
		namespace = ""
	}
	return &target{
		served: v, namespace: namespace, name: name, subresource: subresource, user: l.user,
		manager: managerName(manager, l.agent), dryRun: len(dryRun) > 0, options: options,
	}, nil
}

func result(o *object, err error) (api.Object, error) {
	if err != nil {
		return nil, err
	}
	return o.Object, nil
}

func (l *local) Get(_ context.Context, r *api.Resource, namespace, name string) (api.Object, error) {
	t, err := l.target(r, namespace, name, "", "", nil, nil)
	if err != nil {
		return nil, err
	}
	_, o, err := l.s.current(t.served, t.namespace, name)
	return result(o, err)
}

func (l *local) List(ctx context.Context, r *api.Resource, namespace string, opts metav1.ListOptions) ([]api.Object, error) {
	t, err := l.target(r, namespace, "", "", "", nil, nil)
	if err != nil {
		return nil, err
	}
	sel, err := parseSelector(t.served, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	p, err := l.s.list(ctx, t.served, t.namespace, sel, &opts)
	if err != nil {
		return nil, err
	}
	out := make([]api.Object, len(p.objects))
	for i, o := range p.objects {
		out[i] = o.Object
	}
	return out, nil
}

func (l *local) Create(ctx context.Context, r *api.Resource, obj api.Object, opts metav1.CreateOptions) (api.Object, error) {
	t, err := l.target(r, obj.GetNamespace(), obj.GetName(), "", opts.FieldManager, opts.DryRun, &opts)
	if err != nil {
		return nil, err
	}
	private, err := t.storage.toStorage(obj.DeepCopyObject().(api.Object))
	if err != nil {
		return nil, err
	}
	return result(l.s.create(ctx, t, private, l.s.manageCreate(t)))
}

func (l *local) Update(ctx context.Context, r *api.Resource, subresource string, obj api.Object, opts metav1.UpdateOptions) (api.Object, error) {
	t, err := l.target(r, obj.GetNamespace(), obj.GetName(), subresource, opts.FieldManager, opts.DryRun, &opts)
	if err != nil {
		return nil, err
	}
	if subresource == "status" {
		obj = t.layout.withoutRest(obj) // a status update takes the rest from what is there: it need not be copied
	}
	private, err := t.storage.toStorage(obj.DeepCopyObject().(api.Object))
	if err != nil {
		return nil, err
	}
	o, _, err := l.s.update(ctx, t, private)
	return result(o, err)
}

func (l *local) Patch(ctx context.Context, r *api.Resource, namespace, name, subresource string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (api.Object, error) {
	t, err := l.target(r, namespace, name, subresource, opts.FieldManager, opts.DryRun, &opts)
	if err != nil {
		return nil, err
	}
	if sub, ok := r.Subresource(subresource); ok && sub.Scale != nil {
		change, err := scalePatch(kind, data, metav1.FieldValidationIgnore, func(string) {})
		if err != nil {
			return nil, err
		}
		return result(l.s.setScale(ctx, t, sub.Scale, change))
	}
	o, _, err := l.s.patch(ctx, t, kind, data, &opts)
	return result(o, err)
}

func (l *local) Delete(ctx context.Context, r *api.Resource, namespace, name string, opts metav1.DeleteOptions) error {
	t, err := l.target(r, namespace, name, "", "", opts.DryRun, &opts)
	if err != nil {
		return err
	}
	_, _, err = l.s.delete(ctx, t, &opts)
	return err
}

func (l *local) DeleteCollection(ctx context.Context, r *api.Resource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	t, err := l.target(r, namespace, "", "", "", opts.DryRun, &opts)
	if err != nil {
		return err
	}
	_, err = l.s.deleteCollection(ctx, t, &opts, &list)
	return err
}

func (l *local) Post(ctx context.Context, r *api.Resource, namespace, name, subresource string, body runtime.Object) (runtime.Object, error) {
	t, err := l.target(r, namespace, name, subresource, "", nil, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if sub, ok := r.Subresource(subresource); ok && sub.Scale != nil {
		scale, ok := body.(*autoscalingv1.Scale)
		if !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, got %T", body))
		}
		o, err := l.s.setScale(ctx, t, sub.Scale, func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return scale, nil })
		if err != nil {
			return nil, err
		}
		return scaleOf(sub.Scale, o.Object), nil
	}
	p, ok := l.s.posts[postName(t.served, subresource)]
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s: %w", postName(t.served, subresource), errNoPost))
	}
	return l.s.post(ctx, t, p, body.DeepCopyObject())
}

// Lister reads the newest committed state.
func (l *local) Lister(_ context.Context, scope client.Scope) client.Lister {
	v := l.s.servedFor(scope.Resource)
	return lister{l.s, v, scope.Namespace, scopeSelector(v, scope)}
}

func scopeSelector(v *served, scope client.Scope) *selector {
	sel := &selector{resource: scope.Resource, labels: scope.Labels}
	if scope.Fields != nil {
		sel.fields = scope.Fields.Requirements()
	}
	if sel.everything() {
		return nil
	}
	return sel
}

type lister struct {
	s         *Server
	v         *served
	namespace string
	sel       *selector
}

func (l lister) Get(namespace, name string) (api.Object, bool) {
	if !l.v.Namespaced {
		namespace = ""
	}
	if l.namespace != "" && namespace != l.namespace {
		return nil, false
	}
	v, ok := l.s.store.Snapshot().Get(l.v.key(namespace, name))
	if !ok {
		return nil, false
	}
	obj := v.Value.(*object).Object
	return obj, l.sel.matches(obj)
}

func (l lister) All(namespace string) iter.Seq[api.Object] {
	return func(yield func(api.Object) bool) {
		switch {
		case namespace == "":
			namespace = l.namespace
		case l.namespace != "" && namespace != l.namespace:
			return
		}
		for v := range l.s.store.Snapshot().Range(l.v.scope(namespace), "") {
			if obj := v.Value.(*object).Object; l.sel.matches(obj) && !yield(obj) {
				return
			}
		}
	}
}
