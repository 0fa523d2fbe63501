// Package clientfake is a client.Interface over a map, for the tests of components. It keeps the promises that components
// rely on: one growing resourceVersion, conflicts, uids, generations, defaulting and validation from the table, status
// apart from the rest, finalizers, graceful deletion, selectors, patches and subscriptions in commit order. It has no
// admission, authorization, garbage collection or managed fields.
package clientfake

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/client"
)

// Client is an API in memory. Use New. It is safe for concurrent use.
type Client struct {
	table *api.Table

	mu       sync.Mutex
	objects  map[id]api.Object
	revision uint64
	subs     map[*subscription]bool
	calls    []Call
	fail     func(Call) error
}

type id struct {
	resource        *api.Resource
	namespace, name string
}

// Call is a write that was asked for, whether or not it succeeded.
type Call struct {
	// Verb is create, update, patch, delete or post.
	Verb            string
	Resource        *api.Resource
	Subresource     string
	Namespace, Name string
	// Object of a create or update.
	Object api.Object
}

// New returns a client of the kinds in t that holds objects as they are given, which get a resourceVersion, and a uid and
// a creationTimestamp if they have none.
func New(t *api.Table, objects ...api.Object) *Client {
	c := &Client{table: t, objects: map[id]api.Object{}, subs: map[*subscription]bool{}}
	for _, obj := range objects {
		c.Put(obj)
	}
	return c
}

// Put stores an object as it is, without the rules of the API, and returns what was committed.
func (c *Client) Put(obj api.Object) api.Object {
	r := c.table.ForKind(c.table.KindOf(obj).GroupKind())
	c.mu.Lock()
	defer c.mu.Unlock()
	obj = copyOf(obj)
	if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	if at := obj.GetCreationTimestamp(); at.IsZero() {
		obj.SetCreationTimestamp(now())
	}
	return c.commit(r, c.objects[key(r, obj)], obj)
}

// Remove drops an object at once, as a node agent or the garbage collector ends up doing.
func (c *Client) Remove(obj api.Object) {
	r := c.table.ForKind(c.table.KindOf(obj).GroupKind())
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.objects[key(r, obj)]; old != nil {
		c.commit(r, old, nil)
	}
}

// FailWith makes writes for which fail returns an error end with it. It is called without locks of the client held.
func (c *Client) FailWith(fail func(Call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

// Calls returns the writes so far, and forgets them.
func (c *Client) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// Table implements client.Interface.
func (c *Client) Table() *api.Table { return c.table }

// Get implements client.Interface.
func (c *Client) Get(ctx context.Context, r *api.Resource, namespace, name string) (api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(r, namespace, name)
}

// List implements client.Interface. Of the options, the selectors count.
func (c *Client) List(ctx context.Context, r *api.Resource, namespace string, opts metav1.ListOptions) ([]api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	scope := client.Scope{Resource: r, Namespace: namespace}
	var err error
	if scope.Labels, err = labels.Parse(opts.LabelSelector); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	if scope.Fields, err = fields.ParseSelector(opts.FieldSelector); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	return c.snapshot(scope), nil
}

// Create implements client.Interface.
func (c *Client) Create(ctx context.Context, r *api.Resource, obj api.Object, opts metav1.CreateOptions) (api.Object, error) {
	obj = copyOf(obj)
	if err := c.called(ctx, Call{"create", r, "", obj.GetNamespace(), obj.GetName(), obj}); err != nil {
		return nil, err
	}
	if r.Namespaced != (obj.GetNamespace() != "") {
		return nil, errors.NewBadRequest("the namespace of the object does not fit its kind")
	}
	if obj.GetResourceVersion() != "" {
		return nil, errors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	if c.objects[key(r, obj)] != nil {
		return nil, errors.NewAlreadyExists(r.GroupResource(), obj.GetName())
	}
	if r.Default != nil {
		r.Default(obj)
	}
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(now())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetGeneration(0)
	if r.HasGeneration {
		obj.SetGeneration(1)
	}
	if r.HasStatus() && !r.KeepsStatusOnCreate {
		copyStatus(obj, r.New())
	}
	if r.PrepareCreate != nil {
		r.PrepareCreate(obj)
	}
	validName := r.ValidateName
	if validName == nil {
		validName = apivalidation.NameIsDNSSubdomain
	}
	problems := apivalidation.ValidateObjectMetaAccessor(obj, r.Namespaced, validName, field.NewPath("metadata"))
	if r.Validate != nil {
		problems = append(problems, r.Validate(obj)...)
	}
	if len(problems) > 0 {
		return nil, errors.NewInvalid(r.GroupKind(), obj.GetName(), problems)
	}
	return c.commit(r, nil, obj), nil
}

// Update implements client.Interface.
func (c *Client) Update(ctx context.Context, r *api.Resource, subresource string, obj api.Object, opts metav1.UpdateOptions) (api.Object, error) {
	obj = copyOf(obj)
	if err := c.called(ctx, Call{"update", r, subresource, obj.GetNamespace(), obj.GetName(), obj}); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.update(r, subresource, obj)
}

// Delete implements client.Interface.
func (c *Client) Delete(ctx context.Context, r *api.Resource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := c.called(ctx, Call{"delete", r, "", namespace, name, nil}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.get(r, namespace, name)
	if err != nil {
		return err
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() {
			return errors.NewConflict(r.GroupResource(), name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *p.UID, old.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return errors.NewConflict(r.GroupResource(), name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)", *p.ResourceVersion, old.GetResourceVersion()))
		}
	}
	if len(opts.DryRun) > 0 {
		return nil
	}
	obj := copyOf(old)
	var grace int64
	if r.GracePeriod != nil {
		grace = r.GracePeriod(obj, &opts)
	}
	finalizers := obj.GetFinalizers()
	if p := opts.PropagationPolicy; p != nil && *p == metav1.DeletePropagationForeground && !slices.Contains(finalizers, metav1.FinalizerDeleteDependents) {
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	if p := opts.PropagationPolicy; p != nil && *p == metav1.DeletePropagationOrphan && !slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	obj.SetFinalizers(finalizers)
	if grace == 0 && len(finalizers) == 0 {
		c.commit(r, old, nil)
		return nil
	}
	if old.GetDeletionTimestamp() == nil || old.GetDeletionGracePeriodSeconds() != nil && grace < *old.GetDeletionGracePeriodSeconds() {
		at := metav1.NewTime(now().Add(time.Duration(grace) * time.Second))
		obj.SetDeletionTimestamp(&at)
		obj.SetDeletionGracePeriodSeconds(&grace)
		if r.HasGeneration {
			obj.SetGeneration(obj.GetGeneration() + 1)
		}
	}
	if !equality.Semantic.DeepEqual(obj, old) {
		c.commit(r, old, obj)
	}
	return nil
}

// DeleteCollection implements client.Interface.
func (c *Client) DeleteCollection(ctx context.Context, r *api.Resource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	objects, err := c.List(ctx, r, namespace, list)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Delete(ctx, r, obj.GetNamespace(), obj.GetName(), opts); err != nil && !errors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Post implements client.Interface for the binding and eviction of pods.
func (c *Client) Post(ctx context.Context, r *api.Resource, namespace, name, subresource string, body runtime.Object) (runtime.Object, error) {
	if err := c.called(ctx, Call{"post", r, subresource, namespace, name, nil}); err != nil {
		return nil, err
	}
	switch subresource {
	case "eviction":
		return &metav1.Status{Status: metav1.StatusSuccess}, c.Delete(ctx, r, namespace, name, metav1.DeleteOptions{})
	case "binding":
		c.mu.Lock()
		defer c.mu.Unlock()
		old, err := c.get(r, namespace, name)
		if err != nil {
			return nil, err
		}
		pod := copyOf(old).(*corev1.Pod)
		if pod.Spec.NodeName != "" {
			return nil, errors.NewConflict(r.GroupResource(), name, fmt.Errorf("pod %s is already assigned to node %q", name, pod.Spec.NodeName))
		}
		pod.Spec.NodeName = body.(*corev1.Binding).Target.Name
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now(),
		})
		c.commit(r, old, pod)
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return nil, errors.NewMethodNotSupported(r.GroupResource(), subresource)
}

// Lister implements client.Interface: it reads what is committed.
func (c *Client) Lister(ctx context.Context, scope client.Scope) client.Lister {
	return lister{c, scope}
}

type lister struct {
	c     *Client
	scope client.Scope
}

func (l lister) Get(namespace, name string) (api.Object, bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	obj := l.c.objects[id{l.scope.Resource, namespace, name}]
	return obj, obj != nil && selects(l.scope, obj)
}

func (l lister) All(namespace string) iter.Seq[api.Object] {
	scope := l.scope
	if namespace != "" {
		if scope.Namespace != "" && scope.Namespace != namespace {
			return func(func(api.Object) bool) {}
		}
		scope.Namespace = namespace
	}
	return slices.Values(l.c.snapshot(scope))
}

// called notes a write and returns the error it shall end with.
func (c *Client) called(ctx context.Context, call Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		return fail(call)
	}
	return nil
}

// The functions below run with mu held, except for snapshot.

func (c *Client) get(r *api.Resource, namespace, name string) (api.Object, error) {
	if obj := c.objects[id{r, namespace, name}]; obj != nil {
		return obj, nil
	}
	return nil, errors.NewNotFound(r.GroupResource(), name)
}

func (c *Client) update(r *api.Resource, subresource string, obj api.Object) (api.Object, error) {
	old, err := c.get(r, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, err
	}
	if v := obj.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, errors.NewConflict(r.GroupResource(), obj.GetName(), fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, errors.NewConflict(r.GroupResource(), obj.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID()))
	}
	if r.Default != nil {
		r.Default(obj)
	}
	validate := r.ValidateUpdate
	switch {
	case subresource == "status" && r.HasStatus():
		next := copyOf(old)
		copyStatus(next, obj)
		obj = next
		if r.PrepareStatusUpdate != nil {
			r.PrepareStatusUpdate(obj, old)
		}
		validate = r.ValidateStatusUpdate
	case subresource != "":
		return nil, errors.NewNotFound(r.GroupResource(), obj.GetName()+"/"+subresource)
	default:
		if r.HasStatus() {
			copyStatus(obj, old)
		}
		if r.PrepareUpdate != nil {
			r.PrepareUpdate(obj, old)
		}
		if validate == nil && r.Validate != nil {
			validate = func(obj, _ api.Object) field.ErrorList { return r.Validate(obj) }
		}
	}
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetGeneration(old.GetGeneration())
	obj.SetResourceVersion(old.GetResourceVersion())
	if r.HasGeneration && !sameDesire(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	if validate != nil {
		if problems := validate(obj, old); len(problems) > 0 {
			return nil, errors.NewInvalid(r.GroupKind(), obj.GetName(), problems)
		}
	}
	if equality.Semantic.DeepEqual(obj, old) {
		return old, nil
	}
	if grace := obj.GetDeletionGracePeriodSeconds(); obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		c.commit(r, old, nil)
		return obj, nil
	}
	return c.commit(r, old, obj), nil
}

// commit stores obj (nil deletes old) and tells the subscribers.
func (c *Client) commit(r *api.Resource, old, obj api.Object) api.Object {
	c.revision++
	if obj == nil {
		delete(c.objects, key(r, old))
	} else {
		obj.SetResourceVersion(strconv.FormatUint(c.revision, 10))
		obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
		c.objects[key(r, obj)] = obj
	}
	for s := range c.subs {
		s.notice(client.Event{Resource: r, Old: old, New: obj})
	}
	return obj
}

func (c *Client) snapshot(scope client.Scope) []api.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.selected(scope)
}

func (c *Client) selected(scope client.Scope) []api.Object {
	var out []api.Object
	for k, obj := range c.objects {
		if k.resource == scope.Resource && selects(scope, obj) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b api.Object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

func selects(scope client.Scope, obj api.Object) bool {
	if scope.Namespace != "" && scope.Namespace != obj.GetNamespace() {
		return false
	}
	if scope.Labels != nil && !scope.Labels.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	if scope.Fields == nil || scope.Fields.Empty() {
		return true
	}
	set := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	for _, name := range scope.Resource.FieldNames {
		set[name] = scope.Resource.FieldValue(obj, name)
	}
	return scope.Fields.Matches(set)
}

func key(r *api.Resource, obj api.Object) id { return id{r, obj.GetNamespace(), obj.GetName()} }

func copyOf(obj api.Object) api.Object { return obj.DeepCopyObject().(api.Object) }

// now has the precision of the wire.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

func copyStatus(dst, src api.Object) {
	to := reflect.ValueOf(dst).Elem().FieldByName("Status")
	if from := reflect.ValueOf(copyOf(src)).Elem().FieldByName("Status"); to.IsValid() && from.IsValid() {
		to.Set(from)
	}
}

// sameDesire reports whether a and b differ in nothing but metadata and status.
func sameDesire(a, b api.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !equality.Semantic.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}
