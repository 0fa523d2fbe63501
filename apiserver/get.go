package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// get answers GET of one object.
func (x *exchange) get() error {
	var opts metav1.GetOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	revision, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return err
	}
	if err := x.s.reach(x.r.Context(), revision); err != nil {
		return err
	}
	_, o, err := x.s.current(x.v, x.namespace, x.info.Name)
	if err != nil {
		return err
	}
	return x.writeObject(http.StatusOK, o)
}
