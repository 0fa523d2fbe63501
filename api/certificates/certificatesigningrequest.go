package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func certificateSigningRequests() *api.Resource {
	return &api.Resource{
		GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		Plural:           "certificatesigningrequests",
		Singular:         "certificatesigningrequest",
		ShortNames:       []string{"csr"},
		New:              func() api.Object { return new(certificatesv1.CertificateSigningRequest) },
		NewList:          func() runtime.Object { return new(certificatesv1.CertificateSigningRequestList) },
		Subresources:     []api.Subresource{{Name: "approval", Verbs: []string{"get", "patch", "update"}}, api.Status()},
	}
}
