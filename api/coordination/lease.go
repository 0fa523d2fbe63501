package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func leases() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Plural:                      "leases",
		Singular:                    "lease",
		Namespaced:                  true,
		New:                         func() api.Object { return new(coordinationv1.Lease) },
		NewList:                     func() runtime.Object { return new(coordinationv1.LeaseList) },
		DisallowUnconditionalUpdate: true,
		CreateOnUpdate:              true,
		PrepareCreate:               func(obj api.Object) { dropElection(obj.(*coordinationv1.Lease)) },
		PrepareUpdate:               func(obj, old api.Object) { dropElection(obj.(*coordinationv1.Lease)) },
		Validate: func(obj api.Object) field.ErrorList {
			spec, at := &obj.(*coordinationv1.Lease).Spec, field.NewPath("spec")
			var errs field.ErrorList
			if n := spec.LeaseDurationSeconds; n != nil && *n <= 0 {
				errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *n, "must be greater than 0"))
			}
			if n := spec.LeaseTransitions; n != nil && *n < 0 {
				errs = append(errs, field.Invalid(at.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
			}
			return errs
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Holder", rules.Doc(coordinationv1.LeaseSpec{}, "holderIdentity")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			lease := obj.(*coordinationv1.Lease)
			return []any{lease.Name, rules.Value(lease.Spec.HolderIdentity), api.Age(lease.CreationTimestamp, now)}
		},
	}
}

// dropElection clears the fields of coordinated leader election, an alpha feature that is off.
func dropElection(lease *coordinationv1.Lease) {
	lease.Spec.Strategy, lease.Spec.PreferredHolder = nil, nil
}
