package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func cronJobs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("CronJob"),
		Plural:           "cronjobs",
		Singular:         "cronjob",
		ShortNames:       []string{"cj"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(batchv1.CronJob) },
		NewList:          func() runtime.Object { return new(batchv1.CronJobList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
	}
}
