package certificates

import (
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func clusterTrustBundles() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            certificatesv1alpha1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		Plural:                      "clustertrustbundles",
		Singular:                    "clustertrustbundle",
		New:                         func() api.Object { return new(certificatesv1alpha1.ClusterTrustBundle) },
		NewList:                     func() runtime.Object { return new(certificatesv1alpha1.ClusterTrustBundleList) },
		DisallowUnconditionalUpdate: true,
	}
}
