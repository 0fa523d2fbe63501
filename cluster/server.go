package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"

	"proa/api"
	"proa/api/builtin"
	"proa/apiserver"
	"proa/apiserver/admission"
	"proa/apiserver/authn"
	"proa/apiserver/authz"
	"proa/apiserver/connect"
	"proa/apiserver/discovery"
	"proa/apiserver/eviction"
	"proa/apiserver/openapi"
	"proa/apiserver/request"
	"proa/client"
	"proa/client/events"
	"proa/controllers"
	"proa/internal/pki"
	"proa/scheduler"
	"proa/store"
	"proa/store/embedded"
)

// server is a control plane in the making: what its parts share.
type server struct {
	config Config
	log    *slog.Logger
	table  *api.Table
	ca     *pki.Authority
	issuer *authn.Issuer
	secret string // of join tokens
	api    *apiserver.Server
	group  *group
	// authorizers were made with the API server and have loops of their own.
	authorizers []authz.Authorizer
}

// RunServer runs the control plane, and this machine's nodes, until ctx ends or a part fails.
func RunServer(ctx context.Context, config Config) error {
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	progress := progressWriter()
	lock, err := lockDir(config.DataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := dropNodes(ctx, config); err != nil {
		return err
	}
	s := &server{config: config, log: config.Log, table: builtin.Table(), group: newGroup(ctx, config.Log)}
	if err := s.loadSecrets(); err != nil {
		return err
	}
	backend, err := s.openBackend()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, store.Config{Backend: backend, Decode: apiserver.Decode(s.table), Log: s.log})
	if err != nil {
		return err
	}
	defer func() {
		if err := st.Close(); err != nil {
			s.log.Error("store not closed", "err", err)
		}
	}()
	progress(fmt.Sprintf("store open at revision %d", st.Revision()))

	err = s.start(st, progress)
	if err != nil {
		s.group.fail(err)
	}
	return errors.Join(s.group.wait())
}

// start brings up the parts in order; what runs when it fails is stopped by the group.
func (s *server) start(st *store.Store, progress func(string)) error {
	if err := s.startProfiles(); err != nil {
		return err
	}
	listeners, err := s.listen()
	if err != nil {
		return err
	}
	if err := s.newAPI(st); err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	s.group.start("api server", func(ctx context.Context) error { return s.api.Run(ctx, listeners...) })
	s.group.start("memory", func(ctx context.Context) error { return returnMemory(ctx, st, s.log) })
	for _, a := range s.authorizers {
		if r, ok := a.(authz.Runner); ok {
			s.group.start("authorizer", r.Run)
		}
	}
	ctx := s.group.ctx
	system := s.api.Client(&request.User{Name: "system:apiserver", Groups: []string{request.Masters, request.AllAuthenticated}}, "proa")
	if err := bootstrap(ctx, system, s.config, s.ca.PEM()); err != nil {
		return fmt.Errorf("make the first objects: %w", err)
	}
	if err := s.bootstrapRBAC(ctx, system); err != nil {
		return fmt.Errorf("make the default roles: %w", err)
	}
	url := fmt.Sprintf("https://127.0.0.1:%d", s.config.Port)
	if err := adminKubeconfig(filepath.Join(s.config.DataDir, "admin.kubeconfig"), url, s.ca); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	state := &State{PID: os.Getpid(), Started: time.Now(), Server: url}
	if !s.config.NoNode {
		state.NodeAddress = s.config.NodeAddress.String()
		for i := range s.config.Nodes {
			state.Nodes = append(state.Nodes, s.config.nodeName(i))
		}
	}
	if err := state.save(s.config.DataDir); err != nil {
		return err
	}
	progress("API at " + url)
	s.startControllers()
	if err := s.startScheduler(); err != nil {
		return err
	}
	progress("controllers and scheduler at work")
	if err := s.startNodes(system, progress); err != nil {
		return err
	}
	progress("ready")
	return nil
}

func (s *server) loadSecrets() error {
	dir := filepath.Join(s.config.DataDir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var err error
	if s.ca, err = pki.LoadAuthority(dir, "ca"); err != nil {
		return err
	}
	key, err := pki.LoadKey(filepath.Join(dir, "sa.key"))
	if err != nil {
		return err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("%s/sa.key is a %T, want an elliptic key", dir, key)
	}
	if s.issuer, err = authn.NewIssuer(authn.IssuerConfig{Key: ec}); err != nil {
		return err
	}
	s.secret, err = joinSecret(dir)
	return err
}

func (s *server) openBackend() (store.Backend, error) {
	if s.config.InMemory {
		return store.NewMemory(), nil
	}
	return embedded.Open(filepath.Join(s.config.DataDir, "store"), embedded.Options{Log: s.log, DataDir: s.config.DataDir})
}

// listen opens the API on loopback, and on the node's address for pods and other nodes.
func (s *server) listen() ([]net.Listener, error) {
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if !s.config.NoNode && !s.config.NodeAddress.IsLoopback() {
		addresses = append(addresses, s.config.NodeAddress)
	}
	var listeners []net.Listener
	for _, a := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(a.String(), strconv.Itoa(s.config.Port)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the API's port (choose another with --port): %w", err), closeAll(listeners))
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (s *server) newAPI(st *store.Store) error {
	cert := s.ca.Renewing(pki.Leaf{CommonName: "kube-apiserver", Hosts: []string{
		"localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		nth(s.config.ServiceCIDR, 1).String(), s.config.NodeAddress.String(), s.config.NodeName,
	}})
	// Authenticators exist before the server has a client; they ask for it when a request comes.
	late := func() client.Interface {
		return s.api.Client(&request.User{Name: "system:apiserver", Groups: []string{request.Masters}}, "proa")
	}
	accounts, bootstrap := s.issuer.Authenticator(late), authn.NewBootstrapToken(late)
	nodes := func(ctx context.Context, name string) (*corev1.Node, error) {
		return client.For[*corev1.Node](late()).Get(ctx, "", name)
	}
	toNode := s.ca.Renewing(pki.Leaf{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{request.Masters}})
	handlers := map[string]http.Handler{joinPath: joinHandler(s.config, s.ca, s.secret, nodes)}
	for path, h := range s.issuer.Handlers() {
		handlers[path] = h
	}
	maps.Copy(handlers, discovery.New(s.table).Handlers())
	maps.Copy(handlers, openapi.New(s.table, serverVersion()).Handlers())
	var err error
	s.api, err = apiserver.New(apiserver.Config{
		Table: s.table,
		Store: st,
		Log:   s.log.With("component", "apiserver"),
		TLS: &tls.Config{
			MinVersion:     tls.VersionTLS12, // client libraries of many ages connect here
			GetCertificate: cert.ForServer,
			// Authentication verifies: who shows a bad certificate gets an answer, not a broken handshake.
			ClientAuth: tls.RequestClientCert,
			ClientCAs:  s.ca.Pool(),
			NextProtos: []string{"h2", "http/1.1"},
		},
		Authenticators: []authn.Authenticator{authn.NewCertificate(s.ca.Pool()), accounts, bootstrap},
		Authorizers: func(c client.Interface) []authz.Authorizer {
			s.authorizers = authz.Default(c)
			return s.authorizers
		},
		Admission: func(c client.Interface) admission.Chain { return admission.Default(c, s.log) },
		Posts: func(c client.Interface) map[string]request.Poster {
			posts := authn.Posts(c, s.issuer, accounts, bootstrap)
			maps.Copy(posts, authz.Posts(s.authorizers))
			maps.Copy(posts, eviction.Posts(c))
			return posts
		},
		Connect: connect.New(connect.Config{Client: late, NodeTLS: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: s.ca.Pool(), GetClientCertificate: toNode.ForClient,
		}, Dial: dialReal}),
		Handlers:    handlers,
		PublicPaths: []string{joinPath},
		ServiceCIDR: s.config.ServiceCIDR,
		Version:     serverVersion(),
	})
	return err
}

func serverVersion() version.Info {
	return version.Info{
		Major: "1", Minor: "31", GitVersion: Version, GitTreeState: "clean",
		GoVersion: goVersion(), Compiler: "gc", Platform: platform(),
	}
}

// bootstrapRBAC makes the default roles and bindings, and mends those that allow it.
func (s *server) bootstrapRBAC(ctx context.Context, c client.Interface) error {
	var wg sync.WaitGroup
	failures := make(chan error, 1)
	limit := make(chan struct{}, 64) // the store commits what waits together
	for _, wanted := range authz.Bootstrap() {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if err := reconcileRole(ctx, c, wanted); err != nil {
				select {
				case failures <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func (s *server) startControllers() {
	config := controllers.Config{RootCA: string(s.ca.PEM()), Signer: s.sign, IssueToken: s.issuer.IssueLegacy}
	if !s.config.NoNode || s.config.HollowNodes > 0 {
		config.PodCIDRs = []netip.Prefix{s.config.PodCIDR}
	}
	s.group.start("controllers", func(ctx context.Context) error {
		return controllers.Run(ctx, s.log, config, func(account string) client.Interface {
			return s.api.Client(&request.User{
				Name:   request.ServiceAccountUsers + "kube-system:" + account,
				Groups: []string{request.ServiceAccounts, request.ServiceAccounts + ":kube-system", request.AllAuthenticated},
			}, "kube-controller-manager")
		})
	})
}

func (s *server) startScheduler() error {
	c := s.api.Client(&request.User{Name: "system:kube-scheduler", Groups: []string{request.AllAuthenticated}}, "kube-scheduler")
	log := s.log.With("component", "scheduler")
	recorder := events.New(c, log, "default-scheduler", "")
	sched, err := scheduler.New(scheduler.Config{Client: c, Log: log, Events: recorder})
	if err != nil {
		return err
	}
	s.group.start("scheduler events", recorder.Run)
	s.group.start("scheduler", sched.Run)
	return nil
}
