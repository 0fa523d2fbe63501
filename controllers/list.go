package controllers

// List returns every controller, in the order they start.
func List() []Entry {
	return []Entry{
		{"namespace-controller", "namespace-controller", newNamespaces},
		{"serviceaccount-controller", "service-account-controller", newServiceAccounts},
		{"serviceaccount-token-controller", "token-controller", newServiceAccountTokens},
		{"certificatesigningrequest-approving-controller", "certificate-controller", newCertificateApproval},
		{"certificatesigningrequest-signing-controller", "certificate-controller", newCertificateSigning},
		{"certificatesigningrequest-cleaner-controller", "certificate-controller", newCertificateCleaner},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", newRootCA},
		{"deployment-controller", "deployment-controller", newDeployments},
		{"replicaset-controller", "replicaset-controller", newReplicaSets},
		{"replication-controller", "replication-controller", newReplicationControllers},
		{"statefulset-controller", "statefulset-controller", newStatefulSets},
		{"daemonset-controller", "daemon-set-controller", newDaemonSets},
		{"job-controller", "job-controller", newJobs},
		{"cronjob-controller", "cronjob-controller", newCronJobs},
		{"garbage-collector-controller", "generic-garbage-collector", newGarbageCollector},
		{"endpointslice-controller", "endpointslice-controller", newEndpointSlices},
		{"endpoints-controller", "endpoint-controller", newEndpoints},
		{"endpointslice-mirroring-controller", "endpointslicemirroring-controller", newSliceMirror},
		{"pod-garbage-collector-controller", "pod-garbage-collector", newPodGC},
		{"node-lifecycle-controller", "node-controller", newNodeLifecycle},
		{"taint-eviction-controller", "node-controller", newTaintEviction},
		{"node-ipam-controller", "node-controller", newNodeIPAM},
		{"disruption-controller", "disruption-controller", newDisruption},
		{"resourcequota-controller", "resourcequota-controller", newResourceQuotas},
		{"ttl-after-finished-controller", "ttl-after-finished-controller", newTTLAfterFinished},
		{"persistentvolumeclaim-protection-controller", "pvc-protection-controller", newPVCProtection},
		{"persistentvolume-protection-controller", "pv-protection-controller", newPVProtection},
		{"clusterrole-aggregation-controller", "clusterrole-aggregation-controller", newClusterRoleAggregation},
	}
}
