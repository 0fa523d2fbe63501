package apiserver

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"proa/api"
)

// The approval subresource changes conditions only, and only to what the kind's rules allow.
func TestApprovalRules(t *testing.T) {
	request := func(certificate string, types ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Username: "u"}}
		csr.Status.Certificate = []byte(certificate)
		for _, kind := range types {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: "True"})
		}
		return csr
	}
	prepare, validate := approveRequest()
	var old api.Object = request("old")
	approved := request("new", certificatesv1.CertificateApproved)
	approved.Spec.Username = "other"
	prepare(approved, old)
	if approved.Spec.Username != "u" || string(approved.Status.Certificate) != "old" || approved.Status.Conditions[0].LastUpdateTime.IsZero() {
		t.Errorf("prepared to %+v", approved)
	}
	if errs := validate(approved, old); len(errs) > 0 {
		t.Errorf("an approval is refused: %v", errs)
	}
	for name, c := range map[string]struct {
		csr, old *certificatesv1.CertificateSigningRequest
	}{
		"both":      {request("", certificatesv1.CertificateApproved, certificatesv1.CertificateDenied), request("")},
		"withdrawn": {request(""), request("", certificatesv1.CertificateApproved)},
		"untyped":   {request("", ""), request("")},
	} {
		prepare(c.csr, c.old)
		if errs := validate(c.csr, c.old); len(errs) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
}
