package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// A signer's name is a fully qualified domain, a slash and a path.
	maxSignerDomain = 253
	maxSignerName   = 571

	minExpirationSeconds = 600
	maxBundle            = 1 << 20
)

func keyUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageAny, certificatesv1.UsageCRLSign, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth,
		certificatesv1.UsageCodeSigning, certificatesv1.UsageContentCommitment, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
	}
}

func validateRequest(csr *certificatesv1.CertificateSigningRequest) field.ErrorList {
	at, spec := field.NewPath("spec"), &csr.Spec
	var errs field.ErrorList
	if block, _ := pem.Decode(spec.Request); block == nil || block.Type != "CERTIFICATE REQUEST" {
		errs = append(errs, field.Invalid(at.Child("request"), spec.Request, "PEM block type must be CERTIFICATE REQUEST"))
	} else if _, err := x509.ParseCertificateRequest(block.Bytes); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), spec.Request, err.Error()))
	}
	if len(spec.Usages) == 0 {
		errs = append(errs, field.Required(at.Child("usages"), ""))
	}
	known := keyUsages()
	slices.Sort(known)
	for i, usage := range spec.Usages {
		if !slices.Contains(known, usage) {
			errs = append(errs, field.NotSupported(at.Child("usages").Index(i), usage, known))
		}
		if slices.Contains(spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(at.Child("usages").Index(i), usage))
		}
	}
	if spec.SignerName == "kubernetes.io/legacy-unknown" {
		errs = append(errs, field.Invalid(at.Child("signerName"), spec.SignerName, "Invalid value. Signer not allowed via API version "+csr.APIVersion))
	} else {
		errs = append(errs, validateSignerName(spec.SignerName, at.Child("signerName"))...)
	}
	if n := spec.ExpirationSeconds; n != nil && *n < minExpirationSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *n, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

func validateSignerName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	// The domain may be longer as a whole than a name in DNS.
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		for _, msg := range utilvalidation.IsDNS1123Label(label) {
			msg = strings.Replace(msg, "RFC 1123 label", "RFC 1123 subdomain", 1)
			errs = append(errs, field.Invalid(at, label, fmt.Sprintf("validating label %q: %s", label, msg)))
		}
	}
	if len(labels) < 2 {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(path) {
		errs = append(errs, field.Invalid(at, path, fmt.Sprintf("validating label %q: %s", path, msg)))
	}
	if len(domain) > maxSignerDomain {
		errs = append(errs, field.TooLong(at, domain, maxSignerDomain))
	}
	if len(name) > maxSignerName {
		errs = append(errs, field.TooLong(at, name, maxSignerName))
	}
	return errs
}

// keepDecision takes the decision on a request, which belongs to the approval subresource, from the old object.
func keepDecision(csr, old *certificatesv1.CertificateSigningRequest) {
	decision := func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	}
	var kept []certificatesv1.CertificateSigningRequestCondition
	for _, c := range old.Status.Conditions {
		if decision(c) {
			kept = append(kept, c)
		}
	}
	for _, c := range csr.Status.Conditions {
		if !decision(c) {
			kept = append(kept, c)
		}
	}
	csr.Status.Conditions = kept
}

// PrepareApproval makes an update through the approval subresource change nothing but the conditions.
func PrepareApproval(csr, old *certificatesv1.CertificateSigningRequest) {
	csr.Spec = old.Spec
	csr.Status.Certificate = old.Status.Certificate
}

// ValidateApproval returns what is wrong with an update through the approval subresource.
func ValidateApproval(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := validateConditions(csr, old)
	if !bytes.Equal(csr.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(field.NewPath("status", "certificate"), "updates may not change the certificate"))
	}
	return errs
}

func validateRequestStatus(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := validateConditions(csr, old)
	at := field.NewPath("status", "certificate")
	if len(old.Status.Certificate) > 0 {
		return append(errs, validation.ValidateImmutableField(csr.Status.Certificate, old.Status.Certificate, at)...)
	}
	if len(csr.Status.Certificate) == 0 {
		return errs
	}
	invalid := func(msg string) { errs = append(errs, field.Invalid(at, "<certificate data>", msg)) }
	rest, count := csr.Status.Certificate, 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		count++
		switch {
		case block.Type != "CERTIFICATE":
			invalid("only CERTIFICATE PEM blocks are allowed, found " + fmt.Sprintf("%q", block.Type))
		case len(block.Headers) > 0:
			invalid("no PEM block headers are permitted")
		default:
			if list, err := x509.ParseCertificates(block.Bytes); err != nil {
				invalid(err.Error())
			} else if len(list) == 0 {
				invalid("found CERTIFICATE PEM block containing 0 certificates")
			}
		}
	}
	if count == 0 {
		invalid("must contain at least one CERTIFICATE PEM block")
	}
	return errs
}

func validateConditions(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	at := field.NewPath("status", "conditions")
	var errs field.ErrorList
	lasting := []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range csr.Status.Conditions {
		at := at.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		statuses := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(lasting, c.Type) {
			statuses = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !slices.Contains(statuses, c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, statuses))
		}
		if c.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] || c.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	for _, kind := range lasting {
		had := conditionsOf(old, kind)
		have := conditionsOf(csr, kind)
		switch {
		case len(have) < len(had):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		case len(have) > len(had) && len(had) > 0:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", kind)))
		case len(had) > 0 && !equality.Semantic.DeepEqual(have, had):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not modify a condition of type %q", kind)))
		}
	}
	return errs
}

func conditionsOf(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var out []certificatesv1.CertificateSigningRequestCondition
	for _, c := range csr.Status.Conditions {
		if c.Type == kind {
			out = append(out, c)
		}
	}
	return out
}

func validateTrustBundle(bundle *certificatesv1alpha1.ClusterTrustBundle) field.ErrorList {
	at, name := field.NewPath("spec"), field.NewPath("metadata", "name")
	signer := bundle.Spec.SignerName
	var errs field.ErrorList
	rest := bundle.Name
	if signer == "" {
		if strings.Contains(bundle.Name, ":") {
			errs = append(errs, field.Invalid(name, bundle.Name, `ClusterTrustBundle without signer name must not have ":" in its name`))
			rest = "x"
		}
	} else {
		errs = append(errs, validateSignerName(signer, at.Child("signerName"))...)
		prefix := strings.ReplaceAll(signer, "/", ":") + ":"
		if !strings.HasPrefix(bundle.Name, prefix) {
			errs = append(errs, field.Invalid(name, bundle.Name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)))
		}
		rest = strings.TrimPrefix(bundle.Name, prefix)
	}
	for _, msg := range validation.NameIsDNSSubdomain(rest, false) {
		errs = append(errs, field.Invalid(name, bundle.Name, msg))
	}
	return append(errs, validateAnchors(bundle.Spec.TrustBundle, at.Child("trustBundle"))...)
}

func validateAnchors(bundle string, at *field.Path) field.ErrorList {
	if len(bundle) > maxBundle {
		return field.ErrorList{field.TooLong(at, fmt.Sprintf("<value omitted, len %d>", len(bundle)), maxBundle)}
	}
	var errs field.ErrorList
	invalid := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	indexes := map[string][]int{}
	var order []string
	rest := []byte(bundle)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			invalid("entry %d has bad block type: %v", i, block.Type)
			continue
		}
		if len(block.Headers) > 0 {
			invalid("entry %d has PEM block headers", i)
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			invalid("entry %d does not parse as X.509", i)
			continue
		}
		if !cert.IsCA {
			invalid("entry %d does not have the CA bit set", i)
		}
		if len(indexes[string(block.Bytes)]) == 0 {
			order = append(order, string(block.Bytes))
		}
		indexes[string(block.Bytes)] = append(indexes[string(block.Bytes)], i)
	}
	if len(errs) == 0 && len(order) == 0 {
		invalid("at least one trust anchor must be provided")
	}
	for _, der := range order {
		if len(indexes[der]) > 1 {
			invalid("duplicate trust anchor (indices %v)", indexes[der])
		}
	}
	return errs
}
