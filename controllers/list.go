package controllers

// List returns every controller, in the order they start.
func List() []Entry {
	return []Entry{
		{"namespace-controller", "namespace-controller", newNamespaces},
		{"serviceaccount-controller", "service-account-controller", newServiceAccounts},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", newRootCA},
		{"garbage-collector-controller", "generic-garbage-collector", newGarbageCollector},
		{"endpointslice-controller", "endpointslice-controller", newEndpointSlices},
		{"endpoints-controller", "endpoint-controller", newEndpoints},
		{"pod-garbage-collector-controller", "pod-garbage-collector", newPodGC},
		{"node-lifecycle-controller", "node-controller", newNodeLifecycle},
	}
}
