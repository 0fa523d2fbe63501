package apiserver

import (
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

// selector decides which objects of a kind a request sees. Nil parts select everything.
type selector struct {
	resource *api.Resource
	labels   labels.Selector
	fields   fields.Requirements
}

// parseSelector checks the selectors of a request of v.
func parseSelector(v *served, labelSelector, fieldSelector string) (*selector, error) {
	out := &selector{resource: v.Resource}
	if labelSelector != "" {
		l, err := labels.Parse(labelSelector)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		out.labels = l
	}
	if fieldSelector != "" {
		f, err := fields.ParseSelector(fieldSelector)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := out.setFields(v, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *selector) setFields(v *served, f fields.Selector) error {
	if f == nil || f.Empty() {
		return nil
	}
	for _, q := range f.Requirements() {
		if q.Field != "metadata.name" && (q.Field != "metadata.namespace" || !v.Namespaced) && !slices.Contains(v.FieldNames, q.Field) {
			if len(v.FieldNames) == 0 {
				return apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only %q, %q", q.Field, "metadata.name", "metadata.namespace"))
			}
			return apierrors.NewBadRequest("field label not supported: " + q.Field)
		}
		s.fields = append(s.fields, q)
	}
	return nil
}

func (s *selector) everything() bool {
	return s == nil || (s.labels == nil || s.labels.Empty()) && len(s.fields) == 0
}

func (s *selector) matches(obj api.Object) bool {
	if s == nil {
		return true
	}
	if s.labels != nil && !s.labels.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	for _, q := range s.fields {
		if (fieldValue(s.resource, obj, q.Field) == q.Value) == (q.Operator == "!=") {
			return false
		}
	}
	return true
}

// exact returns the value that a field must have, if the selector wants one.
func (s *selector) exact(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	for _, q := range s.fields {
		if q.Field == name && q.Operator != "!=" {
			return q.Value, true
		}
	}
	return "", false
}

func fieldValue(r *api.Resource, obj api.Object, name string) string {
	switch name {
	case "metadata.name":
		return obj.GetName()
	case "metadata.namespace":
		return obj.GetNamespace()
	}
	if r.FieldValue == nil {
		return ""
	}
	return r.FieldValue(obj, name)
}

// decodeOptions reads options from the query of a request.
func (s *Server) decodeOptions(q url.Values, into runtime.Object) error {
	if err := s.params.DecodeParameters(q, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// newParams returns a codec of the options that every group version takes.
func newParams() runtime.ParameterCodec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	return runtime.NewParameterCodec(scheme)
}
