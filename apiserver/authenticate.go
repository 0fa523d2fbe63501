package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa/apiserver/authz"
	"proa/apiserver/request"
)

// authenticate asks the authenticators in order. Without any credentials the user is nil; that is an error unless the
// path is public.
func (s *Server) authenticate(r *http.Request) (*request.User, error) {
	if len(s.authenticators) == 0 {
		return &request.User{Name: "system:admin", Groups: []string{request.Masters, request.AllAuthenticated}}, nil
	}
	var failure error
	for _, a := range s.authenticators {
		user, err := a.Authenticate(r)
		if user != nil && err == nil {
			return user, nil
		}
		if err != nil {
			failure = err
		}
	}
	if failure != nil {
		s.log.Debug("credentials refused", "err", failure)
	}
	return nil, unauthorized()
}

func unauthorized() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized",
	}}
}

const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

func impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// serviceAccount takes the user name of a service account apart. Who merely looks like one is an ordinary user.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, request.ServiceAccountUsers)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	ok = ok && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
	return namespace, name, ok
}

// impersonate returns the user that the request wants to act as, if its sender may.
func (s *Server) impersonate(r *http.Request, user *request.User) (*request.User, error) {
	name := r.Header.Get(impersonateUser)
	if name == "" {
		return nil, apierrors.NewBadRequest("requested impersonation of groups, uid or extra without impersonating a user")
	}
	may := func(info *request.Info) error {
		info.IsResource, info.Verb, info.Version = true, "impersonate", "v1"
		d, reason, _ := s.authorizer.Authorize(r.Context(), user, info)
		if d != authz.Allow && s.config.Authorizers != nil {
			return forbidden(user, info, reason)
		}
		return nil
	}
	out := &request.User{Name: name, UID: r.Header.Get(impersonateUID), Groups: r.Header.Values(impersonateGroup)}
	if namespace, account, ok := serviceAccount(name); ok {
		if err := may(&request.Info{Resource: "serviceaccounts", Namespace: namespace, Name: account}); err != nil {
			return nil, err
		}
		if len(out.Groups) == 0 {
			out.Groups = []string{request.ServiceAccounts, request.ServiceAccounts + ":" + namespace}
		}
	} else if err := may(&request.Info{Resource: "users", Name: name}); err != nil {
		return nil, err
	}
	for _, g := range r.Header.Values(impersonateGroup) {
		if err := may(&request.Info{Resource: "groups", Name: g}); err != nil {
			return nil, err
		}
	}
	if out.UID != "" {
		if err := may(&request.Info{Group: "authentication.k8s.io", Resource: "uids", Name: out.UID}); err != nil {
			return nil, err
		}
	}
	for header, values := range r.Header {
		key, ok := strings.CutPrefix(header, impersonateExtra)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		for _, v := range values {
			if err := may(&request.Info{Group: "authentication.k8s.io", Resource: "userextras", Subresource: key, Name: v}); err != nil {
				return nil, err
			}
		}
		if out.Extra == nil {
			out.Extra = map[string][]string{}
		}
		out.Extra[key] = values
	}
	switch {
	case name == request.Anonymous:
		if !out.In(request.AllUnauthenticated) {
			out.Groups = append(out.Groups, request.AllUnauthenticated)
		}
	case !out.In(request.AllAuthenticated) && !out.In(request.AllUnauthenticated):
		out.Groups = append(out.Groups, request.AllAuthenticated)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			r.Header.Del(name)
		}
	}
	return out, nil
}
