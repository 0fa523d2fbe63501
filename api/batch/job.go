package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func jobs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"),
		Plural:           "jobs",
		Singular:         "job",
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(batchv1.Job) },
		NewList:          func() runtime.Object { return new(batchv1.JobList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
	}
}
