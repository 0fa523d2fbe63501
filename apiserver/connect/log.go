package connect

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/apiserver/request"
)

// logOptions checks the options of a log request and returns them as the node's server reads them.
func logOptions(q url.Values) (url.Values, field.ErrorList, error) {
	out := url.Values{}
	var errs field.ErrorList
	for _, name := range []string{"follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend"} {
		if !q.Has(name) {
			continue
		}
		// An empty value means yes, as everywhere in the API's query parameters.
		if v := q.Get(name); v != "" && v != "false" && v != "0" || v == "" {
			out.Set(name, "true")
		}
	}
	number := func(name string, least int64, text string) error {
		if !q.Has(name) {
			return nil
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("unable to decode query parameter %s: %v", name, err))
		}
		if n < least {
			errs = append(errs, field.Invalid(field.NewPath(name), n, text))
		}
		out.Set(name, strconv.FormatInt(n, 10))
		return nil
	}
	if err := number("tailLines", 0, "must be greater than or equal to 0"); err != nil {
		return nil, nil, err
	}
	if err := number("limitBytes", 1, "must be greater than 0"); err != nil {
		return nil, nil, err
	}
	if err := number("sinceSeconds", 1, "must be greater than 0"); err != nil {
		return nil, nil, err
	}
	if q.Has("sinceTime") {
		if _, err := time.Parse(time.RFC3339Nano, q.Get("sinceTime")); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("unable to decode query parameter sinceTime: %v", err))
		}
		if q.Has("sinceSeconds") {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
		out.Set("sinceTime", q.Get("sinceTime"))
	}
	return out, errs, nil
}

func (x *connector) logs(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	options, errs, err := logOptions(r.URL.Query())
	if err != nil {
		return err
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, info.Name, errs)
	}
	pod, err := x.getPod(r, info)
	if err != nil {
		return err
	}
	name, err := container(pod, r.URL.Query().Get("container"))
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		// Nothing has been written yet; that is no error.
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	target, err := x.nodeURL(r.Context(), pod.Spec.NodeName)
	if err != nil {
		return err
	}
	target.Path = "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + name
	target.RawQuery = options.Encode()
	forward(w, r, target, x.nodes, nil)
	return nil
}
