package certificates

import (
	"cmp"
	"time"

	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func clusterTrustBundles() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            certificatesv1alpha1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		Plural:                      "clustertrustbundles",
		Singular:                    "clustertrustbundle",
		New:                         func() api.Object { return new(certificatesv1alpha1.ClusterTrustBundle) },
		NewList:                     func() runtime.Object { return new(certificatesv1alpha1.ClusterTrustBundleList) },
		DisallowUnconditionalUpdate: true,
		ValidateName:                func(name string, prefix bool) []string { return nil },
		Validate: func(obj api.Object) field.ErrorList {
			return validateTrustBundle(obj.(*certificatesv1alpha1.ClusterTrustBundle))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			bundle, o := obj.(*certificatesv1alpha1.ClusterTrustBundle), old.(*certificatesv1alpha1.ClusterTrustBundle)
			errs := validation.ValidateImmutableField(bundle.Spec.SignerName, o.Spec.SignerName, field.NewPath("spec", "signerName"))
			return append(validateTrustBundle(bundle), errs...)
		},
		FieldNames: []string{"spec.signerName"},
		FieldValue: func(obj api.Object, name string) string {
			return obj.(*certificatesv1alpha1.ClusterTrustBundle).Spec.SignerName
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("SignerName", rules.Doc(certificatesv1alpha1.ClusterTrustBundleSpec{}, "signerName")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			bundle := obj.(*certificatesv1alpha1.ClusterTrustBundle)
			return []any{bundle.Name, cmp.Or(bundle.Spec.SignerName, "<none>")}
		},
	}
}
