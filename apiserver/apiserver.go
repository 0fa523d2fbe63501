// Package apiserver is the HTTP door of the cluster: it routes requests, finds out who sends them and whether they may,
// decodes, admits, validates and commits what they write, and answers reads and watches from the store's snapshots and
// feed. Everything it knows about a kind comes from the API table. Other components of the process reach the same
// pipeline without HTTP through Client.
//
// One file per stage or verb: route, authenticate, negotiate, decode; get, list, watch, create, update, patch, apply,
// delete; local and subscribe for the client of the same process.
package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/version"

	"proa/api"
	"proa/apiserver/admission"
	"proa/apiserver/authn"
	"proa/apiserver/authz"
	"proa/apiserver/request"
	"proa/client"
	"proa/store"
)

// Config of a Server.
type Config struct {
	Table *api.Table
	Store *store.Store
	Log   *slog.Logger
	// TLS of the listeners; nil serves plain HTTP, for tests.
	TLS *tls.Config
	// Authenticators are asked in order.
	Authenticators []authn.Authenticator
	// Authorizers, Admission and Posts get a client that acts with the server's own rights. No authorizers allow all.
	Authorizers func(c client.Interface) []authz.Authorizer
	Admission   func(c client.Interface) admission.Chain
	// Posts answer creates with rules of their own, by "pods/eviction" or "tokenreviews.authentication.k8s.io".
	Posts func(c client.Interface) map[string]request.Poster
	// Connect answers connecting subresources, by "pods/exec".
	Connect map[string]request.Connector
	// Handlers of further paths; a path that ends in / stands for everything below. They see authorized requests.
	Handlers map[string]http.Handler
	// PublicPaths are served without credentials, besides the health endpoints and /version.
	PublicPaths []string
	// ServiceCIDR is where cluster IPs come from; ServiceCIDR6 adds a second family. An invalid prefix switches the
	// allocation off.
	ServiceCIDR, ServiceCIDR6 netip.Prefix
	// NodePorts is the range of node ports, default 30000-32767.
	NodePorts utilnet.PortRange
	Version   version.Info
	// CheckImmutable panics when an object is replaced that somebody has changed since its commit, for tests; the
	// environment variable PROA_CHECK_IMMUTABLE=1 does the same. It costs memory and time.
	CheckImmutable bool
}

// Server is the API server. It is usable through Client as soon as it is made; Run serves HTTP.
type Server struct {
	table  *api.Table
	store  *store.Store
	log    *slog.Logger
	config Config
	scheme *runtime.Scheme
	// params reads options from queries.
	params  runtime.ParameterCodec
	sources []source
	builtin *tableSource

	authenticators []authn.Authenticator
	authorizer     authz.Union
	admission      admission.Chain
	posts          map[string]request.Poster
	handlers       paths
	public         map[string]bool

	encodings *encodings
	answers   sync.Pool // *answer
	// watchers counts the watches over HTTP.
	watchers  atomic.Int64
	deleted   *deletions
	managers  managers
	plans     createPlans
	fieldSets *fieldSets
	services  *serviceAllocator
	dispatch  *dispatcher
	health    health
	metrics   *metrics

	// types gives the schema of built-in kinds to field management; parsing it takes a while, so only when needed.
	types func() managedfields.TypeConverter
}

// New returns a server, ready for use.
func New(c Config) (*Server, error) {
	if c.Table == nil || c.Store == nil {
		return nil, errors.New("apiserver: Config lacks a Table or a Store")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.NodePorts.Size == 0 {
		c.NodePorts = utilnet.PortRange{Base: 30000, Size: 2768}
	}
	s := &Server{
		table:          c.Table,
		store:          c.Store,
		log:            c.Log,
		config:         c,
		scheme:         api.NewScheme(c.Table),
		authenticators: c.Authenticators,
		public:         map[string]bool{"/healthz": true, "/livez": true, "/readyz": true, "/version": true, "/version/": true},
		encodings:      newEncodings(encodingsLimit),
		deleted:        newDeletions(),
		fieldSets:      newFieldSets(),
		metrics:        newMetrics(),
	}
	s.encodings.seals = newSeals(c.CheckImmutable || os.Getenv(checkEnv) == "1")
	s.params = newParams()
	s.builtin = newTableSource(c.Table)
	s.sources = []source{s.builtin}
	s.types = sync.OnceValue(func() managedfields.TypeConverter { return newTypeConverter(s.scheme) })
	s.dispatch = newDispatcher(s.store, s.log)
	for _, p := range c.PublicPaths {
		s.public[p] = true
	}
	own := s.Client(&request.User{Name: "system:apiserver", Groups: []string{request.Masters, request.AllAuthenticated}}, "proa")
	var err error
	if s.services, err = newServiceAllocator(s); err != nil {
		return nil, err
	}
	if c.Authorizers != nil {
		s.authorizer = c.Authorizers(own)
	}
	if c.Admission != nil {
		s.admission = c.Admission(own)
	}
	s.posts = map[string]request.Poster{}
	if c.Posts != nil {
		for name, p := range c.Posts(own) {
			s.posts[name] = p
		}
	}
	s.posts["pods/binding"], s.posts["bindings"] = s.bind, s.bind
	s.handlers = s.newPaths()
	s.health.add("ping", func() error { return nil })
	s.health.add("store", s.store.Err)
	return s, nil
}

// AddReadyCheck adds a check to /readyz and /livez.
func (s *Server) AddReadyCheck(name string, check func() error) { s.health.add(name, check) }

// Handler serves the API without TLS of its own.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// shutdownGrace is how long running requests may take to end once the server stops.
const shutdownGrace = 3 * time.Second

// Run serves the listeners until ctx ends, and closes them.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	server := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.config.TLS,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
	var wg sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() {
			var err error
			if s.config.TLS != nil {
				err = server.ServeTLS(l, "", "")
			} else {
				err = server.Serve(l)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel(errStopping)
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer stop()
	if server.Shutdown(grace) != nil {
		err = errors.Join(err, server.Close())
	}
	wg.Wait()
	s.dispatch.close()
	return err
}

var errStopping = errors.New("the server is stopping")
