package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"proa/apiserver/admission"
	"proa/apiserver/authz"
	"proa/apiserver/request"
	"proa/internal/stack"
)

// serve is the way of every request: path, identity, permission, then the verb.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	stack.Grow()
	start := time.Now()
	rec := &recorder{ResponseWriter: w}
	header := w.Header()
	id := r.Header.Get("Audit-ID")
	if id == "" {
		id = string(uuid.NewUUID())
	}
	header.Set("Audit-Id", id)
	header.Set("Cache-Control", "no-cache, private")
	info := parse(r)
	defer func() {
		if failure := recover(); failure != nil {
			if failure == http.ErrAbortHandler {
				panic(failure)
			}
			s.log.Error("request panicked", "panic", fmt.Sprint(failure), "path", r.URL.Path, "stack", string(debug.Stack()))
			if rec.code == 0 {
				s.writeError(rec, r, apierrors.NewInternalError(errors.New("the request caused a panic in the server")))
			}
		}
		s.metrics.request(info, rec.code, time.Since(start))
	}()
	if !plainPath(r) {
		s.writeError(rec, r, statusOf(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the request path is not in its plain form"))
		return
	}
	if err := s.answer(rec, r, info); err != nil {
		s.writeError(rec, r, err)
	}
}

func (s *Server) answer(w *recorder, r *http.Request, info *request.Info) error {
	user, err := s.authenticate(r)
	public := s.isPublic(r.URL.Path)
	if err != nil && !public {
		return err
	}
	if user == nil || err != nil {
		user = &request.User{Name: request.Anonymous, Groups: []string{request.AllUnauthenticated}}
	}
	if impersonates(r) {
		if user, err = s.impersonate(r, user); err != nil {
			return err
		}
	}
	warned := &warnings{header: w.Header()}
	ctx := request.WithWarnings(r.Context(), warned.add)
	r = r.WithContext(ctx)
	if !public && s.config.Authorizers != nil {
		decision, reason, err := s.authorizer.Authorize(ctx, user, info)
		if decision != authz.Allow {
			if err != nil && decision == authz.NoOpinion && reason == "" {
				reason = err.Error()
			}
			return forbidden(user, info, reason)
		}
	}
	if !info.IsResource {
		return s.handlers.serve(w, r)
	}
	v := s.lookup(info.Group, info.Version, info.Resource)
	if v == nil {
		if s.handlers.has(r.URL.Path) {
			return s.handlers.serve(w, r)
		}
		return errNoPath
	}
	return s.resource(w, r, v, info, user)
}

var errNoPath = statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")

func (s *Server) isPublic(path string) bool {
	return s.public[path] || strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/") || strings.HasPrefix(path, "/healthz/")
}

// resource carries out a request for a resource.
func (s *Server) resource(w *recorder, r *http.Request, v *served, info *request.Info, user *request.User) error {
	sub := info.Subresource
	name := v.Plural
	if sub != "" {
		name += "/" + sub
		if _, ok := v.Subresource(sub); !ok {
			return errNoPath
		}
	}
	if v.Namespaced && info.Namespace == "" && info.Verb != "list" && info.Verb != "watch" && !v.Virtual {
		// All namespaces together can only be read.
		if info.Name == "" {
			return methodNotAllowed()
		}
		return errNoPath
	}
	if !v.Namespaced && info.Namespace != "" && !(v.Plural == "namespaces" && v.Group == "") {
		return errNoPath
	}
	switch info.Verb {
	case "list", "watch", "deletecollection": // the name, if any, is a selector's
	case "update", "patch":
		if info.Name == "" {
			return methodNotAllowed()
		}
		fallthrough
	default:
		if problems := path.IsValidPathSegmentName(info.Name); len(problems) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", info.Name, strings.Join(problems, ";")))
		}
	}
	namespace := info.Namespace
	if !v.Namespaced {
		namespace = ""
	}
	if connect, ok := s.config.Connect[name]; ok {
		t := &target{served: v, namespace: namespace, name: info.Name, subresource: sub, user: user}
		if info.Verb != "get" || sub != "log" {
			a := t.attributes(admission.Connect, nil, nil)
			if err := errors.Join(s.admission.Admit(r.Context(), a), s.admission.Validate(r.Context(), a)); err != nil {
				return err
			}
		}
		return connect(w, r, info)
	}
	x := &exchange{s: s, w: w, r: r, v: v, info: info, user: user, namespace: namespace}
	if p, ok := s.posts[postName(v, sub)]; ok && info.Verb == "create" {
		return x.post(p)
	}
	if sub != "" {
		return x.sub()
	}
	if !v.Serves(info.Verb) {
		return methodNotAllowed()
	}
	switch info.Verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	case "watch":
		return x.watch()
	case "create":
		if strings.Trim(info.Name, "/") != "" {
			return methodNotAllowed()
		}
		return x.create()
	case "update":
		return x.update()
	case "patch":
		return x.patch()
	case "delete":
		return x.delete()
	case "deletecollection":
		return x.deleteCollection()
	}
	return methodNotAllowed()
}

// postName is how Config.Posts calls a resource or subresource.
func postName(v *served, sub string) string {
	if sub != "" {
		if v.Group != "" {
			return v.Key() + "/" + sub
		}
		return v.Plural + "/" + sub
	}
	return v.Key()
}

// exchange is one request for a resource and its answer.
type exchange struct {
	s         *Server
	w         *recorder
	r         *http.Request
	v         *served
	info      *request.Info
	user      *request.User
	namespace string
}

// recorder remembers the status code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(data []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(data)
}

// Flush sends what has been written.
func (r *recorder) Flush() {
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// warnings writes Warning headers, each text once.
type warnings struct {
	header http.Header

	mu   sync.Mutex
	seen map[string]bool
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" || w.seen[text] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	clean := strings.Map(func(c rune) rune {
		if c < ' ' {
			return ' '
		}
		return c
	}, text)
	w.header.Add("Warning", "299 - "+strconv.Quote(clean))
}

// statusOf is an API error with the given parts.
func statusOf(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

func methodNotAllowed() error {
	return statusOf(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
}

func forbidden(user *request.User, info *request.Info, reason string) error {
	name := user.Name
	if !info.IsResource {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: withReason(fmt.Sprintf("forbidden: User %q cannot %s path %q", name, info.Verb, info.Path), reason),
			Details: &metav1.StatusDetails{},
		}}
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q", name, info.Verb, resource, info.Group)
	if info.Namespace != "" {
		text += fmt.Sprintf(" in the namespace %q", info.Namespace)
	} else {
		text += " at the cluster scope"
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.Group, Resource: info.Resource}, info.Name, errors.New(withReason(text, reason)))
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}
