package certificates

import (
	"cmp"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		PrepareCreate: func(obj api.Object) {
			// Conditions and the certificate come through the subresources only.
			obj.(*certificatesv1.CertificateSigningRequest).Status = certificatesv1.CertificateSigningRequestStatus{}
		},
		PrepareUpdate: func(obj, old api.Object) {
			obj.(*certificatesv1.CertificateSigningRequest).Spec = old.(*certificatesv1.CertificateSigningRequest).Spec
		},
		PrepareStatusUpdate: func(obj, old api.Object) {
			keepDecision(obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest))
		},
		Validate: func(obj api.Object) field.ErrorList {
			return validateRequest(obj.(*certificatesv1.CertificateSigningRequest))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList { return nil },
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			return validateRequestStatus(obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest))
		},
		FieldNames: []string{"spec.signerName"},
		FieldValue: func(obj api.Object, name string) string {
			return obj.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.AgeColumn(),
			api.Text("SignerName", rules.Doc(certificatesv1.CertificateSigningRequestSpec{}, "signerName")),
			api.Text("Requestor", rules.Doc(certificatesv1.CertificateSigningRequestSpec{}, "username")),
			api.Text("RequestedDuration", rules.Doc(certificatesv1.CertificateSigningRequestSpec{}, "expirationSeconds")),
			api.Text("Condition", rules.Doc(certificatesv1.CertificateSigningRequestStatus{}, "conditions")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			csr := obj.(*certificatesv1.CertificateSigningRequest)
			requested := "<none>"
			if n := csr.Spec.ExpirationSeconds; n != nil {
				requested = duration.HumanDuration(time.Duration(*n) * time.Second)
			}
			return []any{csr.Name, api.Age(csr.CreationTimestamp, now), cmp.Or(csr.Spec.SignerName, "<none>"), csr.Spec.Username, requested, conditionCell(csr)}
		},
	}
}

func conditionCell(csr *certificatesv1.CertificateSigningRequest) string {
	text := "Pending"
	switch {
	case HasCondition(csr, certificatesv1.CertificateDenied):
		text = "Denied"
	case HasCondition(csr, certificatesv1.CertificateApproved):
		text = "Approved"
	}
	if HasCondition(csr, certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(csr.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}

// HasCondition reports whether a request has a condition of the kind.
func HasCondition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
}
