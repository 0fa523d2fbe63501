// Package remote reaches the API over HTTP, for agents on another machine than the server: client.Interface on
// Kubernetes' own REST client, with protobuf on the wire and caches fed by watches.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"proa/api"
	"proa/client"
)

// Config of a client.
type Config struct {
	Table *api.Table
	// Server is the URL of the API.
	Server string
	// TLS holds what the client trusts and what it shows; it may renew its certificate.
	TLS *tls.Config
	// Token is sent as a bearer token when not empty.
	Token     string
	UserAgent string
	// Log is told when the server refuses a watch; optional.
	Log *slog.Logger
}

// Client is a client.Interface over HTTP. Use New.
type Client struct {
	config Config
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	params runtime.ParameterCodec
	http   *http.Client
	// connections carry new requests.
	connections atomic.Pointer[http.Transport]

	mu     sync.Mutex
	groups map[schema.GroupVersion]rest.Interface
}

var _ client.Interface = (*Client)(nil)

// New returns a client. It opens no connection yet.
func New(c Config) *Client {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	scheme := api.NewScheme(c.Table)
	out := &Client{
		config: c,
		scheme: scheme,
		codecs: serializer.NewCodecFactory(scheme),
		params: runtime.NewParameterCodec(scheme),
		groups: map[schema.GroupVersion]rest.Interface{},
	}
	out.Reconnect()
	// A REST client that is given its transport leaves saying who asks to it.
	out.http = &http.Client{Transport: transport.NewUserAgentRoundTripper(c.UserAgent, newest{&out.connections})}
	return out
}

// Reconnect makes new requests use new connections, which show the certificate of now. Those under way go on.
func (c *Client) Reconnect() {
	old := c.connections.Swap(&http.Transport{TLSClientConfig: c.config.TLS, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment})
	if old != nil {
		old.CloseIdleConnections()
	}
}

type newest struct {
	transport *atomic.Pointer[http.Transport]
}

func (n newest) RoundTrip(r *http.Request) (*http.Response, error) {
	return n.transport.Load().RoundTrip(r)
}

// Table of the kinds.
func (c *Client) Table() *api.Table { return c.config.Table }

// group returns the REST client of a group version.
func (c *Client) group(gv schema.GroupVersion) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.groups[gv]; r != nil {
		return r, nil
	}
	path := "/apis"
	if gv.Group == "" {
		path = "/api"
	}
	r, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: c.config.Server, APIPath: path, BearerToken: c.config.Token, QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &gv, NegotiatedSerializer: c.codecs.WithoutConversion(),
			ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}, c.bearer())
	if err != nil {
		return nil, err
	}
	c.groups[gv] = r
	return r, nil
}

// bearer is the HTTP client, which shows the token if there is one.
func (c *Client) bearer() *http.Client {
	if c.config.Token == "" {
		return c.http
	}
	return &http.Client{Transport: tokenTransport{c.config.Token, c.http.Transport}}
}

type tokenTransport struct {
	token string
	next  http.RoundTripper
}

func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(r)
}

// request begins a request for a resource.
func (c *Client) request(method string, r *api.Resource, namespace, name, subresource string) (*rest.Request, error) {
	g, err := c.group(r.GroupVersion())
	if err != nil {
		return nil, err
	}
	req := g.Verb(method).Resource(r.Plural)
	if r.Namespaced && namespace != "" {
		req = req.Namespace(namespace)
	}
	if name != "" {
		req = req.Name(name)
	}
	if subresource != "" {
		req = req.SubResource(subresource)
	}
	return req, nil
}

// do sends a request and returns the object of r that comes back.
func do(ctx context.Context, r *api.Resource, req *rest.Request) (api.Object, error) {
	obj := r.New()
	if err := req.Do(ctx).Into(obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
	return obj, nil
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, r *api.Resource, namespace, name string) (api.Object, error) {
	if name == "" {
		return nil, apierrors.NewBadRequest("resource name may not be empty")
	}
	req, err := c.request(http.MethodGet, r, namespace, name, "")
	if err != nil {
		return nil, err
	}
	return do(ctx, r, req)
}

// List reads the objects of a namespace.
func (c *Client) List(ctx context.Context, r *api.Resource, namespace string, opts metav1.ListOptions) ([]api.Object, error) {
	objects, _, err := c.list(ctx, r, namespace, opts)
	return objects, err
}

func (c *Client) list(ctx context.Context, r *api.Resource, namespace string, opts metav1.ListOptions) ([]api.Object, string, error) {
	req, err := c.request(http.MethodGet, r, namespace, "", "")
	if err != nil {
		return nil, "", err
	}
	list := r.NewList()
	if err := req.VersionedParams(&opts, c.params).Do(ctx).Into(list); err != nil {
		return nil, "", err
	}
	objects := make([]api.Object, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(api.Object)
		obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
		objects = append(objects, obj)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return objects, accessor.GetResourceVersion(), nil
}

// Create makes an object.
func (c *Client) Create(ctx context.Context, r *api.Resource, obj api.Object, opts metav1.CreateOptions) (api.Object, error) {
	req, err := c.request(http.MethodPost, r, obj.GetNamespace(), "", "")
	if err != nil {
		return nil, err
	}
	return do(ctx, r, req.VersionedParams(&opts, c.params).Body(runtime.Object(obj)))
}

// Update replaces an object or its subresource.
func (c *Client) Update(ctx context.Context, r *api.Resource, subresource string, obj api.Object, opts metav1.UpdateOptions) (api.Object, error) {
	req, err := c.request(http.MethodPut, r, obj.GetNamespace(), obj.GetName(), subresource)
	if err != nil {
		return nil, err
	}
	return do(ctx, r, req.VersionedParams(&opts, c.params).Body(runtime.Object(obj)))
}

// Patch changes an object or its subresource.
func (c *Client) Patch(ctx context.Context, r *api.Resource, namespace, name, subresource string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (api.Object, error) {
	g, err := c.group(r.GroupVersion())
	if err != nil {
		return nil, err
	}
	req := g.Patch(kind).Resource(r.Plural).Name(name)
	if r.Namespaced {
		req = req.Namespace(namespace)
	}
	if subresource != "" {
		req = req.SubResource(subresource)
	}
	return do(ctx, r, req.VersionedParams(&opts, c.params).Body(data))
}

// Delete removes an object.
func (c *Client) Delete(ctx context.Context, r *api.Resource, namespace, name string, opts metav1.DeleteOptions) error {
	req, err := c.request(http.MethodDelete, r, namespace, name, "")
	if err != nil {
		return err
	}
	return req.Body(&opts).Do(ctx).Error()
}

// DeleteCollection removes the objects that a list selects.
func (c *Client) DeleteCollection(ctx context.Context, r *api.Resource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	req, err := c.request(http.MethodDelete, r, namespace, "", "")
	if err != nil {
		return err
	}
	return req.VersionedParams(&list, c.params).Body(&opts).Do(ctx).Error()
}

// Post creates through a subresource. The answer is of the subresource's kind.
func (c *Client) Post(ctx context.Context, r *api.Resource, namespace, name, subresource string, body runtime.Object) (runtime.Object, error) {
	req, err := c.request(http.MethodPost, r, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	data, err := runtime.Encode(c.codecs.LegacyCodec(c.kindOf(r, subresource).GroupVersion()), body)
	if err != nil {
		return nil, err
	}
	return req.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(data).Do(ctx).Get()
}

func (c *Client) kindOf(r *api.Resource, subresource string) schema.GroupVersionKind {
	sub, _ := r.Subresource(subresource)
	return schema.GroupVersionKind{
		Group:   cmp.Or(sub.Kind.Group, map[bool]string{true: r.Group}[sub.Kind.Empty()]),
		Version: cmp.Or(sub.Kind.Version, r.GroupVersionKind.Version),
		Kind:    cmp.Or(sub.Kind.Kind, r.Kind),
	}
}
