package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func statefulSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		Plural:           "statefulsets",
		Singular:         "statefulset",
		ShortNames:       []string{"sts"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.StatefulSet) },
		NewList:          func() runtime.Object { return new(appsv1.StatefulSetList) },
		Subresources:     []api.Subresource{api.ScaleOf(getStatefulSetScale, setStatefulSetScale), api.Status()},
		HasGeneration:    true,
		Default:          defaultStatefulSet,
		PrepareCreate:    func(obj api.Object) { dropMaxUnavailable(obj.(*appsv1.StatefulSet)) },
		PrepareUpdate:    func(obj, old api.Object) { dropMaxUnavailable(obj.(*appsv1.StatefulSet)) },
		// Pods are called after their set, and a name with dots would not make a host name.
		ValidateName:         validation.NameIsDNSLabel,
		Validate:             func(obj api.Object) field.ErrorList { return validateStatefulSet(obj.(*appsv1.StatefulSet)) },
		ValidateUpdate:       validateStatefulSetUpdate,
		ValidateStatusUpdate: validateStatefulSetStatus,
		Warnings: func(obj, old api.Object) []string {
			s := obj.(*appsv1.StatefulSet)
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*appsv1.StatefulSet).Spec.Template
			}
			warnings := core.PodTemplateWarnings(field.NewPath("spec", "template"), &s.Spec.Template, oldTemplate)
			if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
				warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
			}
			return warnings
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Ready", "Number of the pod with ready state"),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			s := obj.(*appsv1.StatefulSet)
			names, images := api.ContainersAndImages(s.Spec.Template.Spec.Containers)
			return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, rules.Value(s.Spec.Replicas)),
				api.Age(s.CreationTimestamp, now), names, images}
		},
	}
}

func defaultStatefulSet(obj api.Object) {
	spec := &obj.(*appsv1.StatefulSet).Spec
	core.DefaultPodTemplate(&spec.Template)
	rules.SetDefault(&spec.Replicas, 1)
	rules.SetDefault(&spec.RevisionHistoryLimit, 10)
	if spec.PodManagementPolicy == "" {
		spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		rules.SetDefault(&strategy.RollingUpdate.Partition, 0)
	}
	if spec.PersistentVolumeClaimRetentionPolicy == nil {
		spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	for _, policy := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
	} {
		if *policy == "" {
			*policy = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		rules.SetDefault(&claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		if claim.Status.Phase == "" {
			claim.Status.Phase = corev1.ClaimPending
		}
	}
}

// dropMaxUnavailable clears a field of an alpha feature that is off.
func dropMaxUnavailable(s *appsv1.StatefulSet) {
	if s.Spec.UpdateStrategy.RollingUpdate != nil {
		s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = nil
	}
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	spec := &s.Spec
	var errs field.ErrorList
	switch spec.PodManagementPolicy {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), spec.PodManagementPolicy,
			"must be '"+string(appsv1.OrderedReadyPodManagement)+"' or '"+string(appsv1.ParallelPodManagement)+"'"))
	}
	errs = append(errs, validateStatefulSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		errs = append(errs, validateRetention(path.Child("persistentVolumeClaimRetentionPolicy", "whenDeleted"), policy.WhenDeleted)...)
		errs = append(errs, validateRetention(path.Child("persistentVolumeClaimRetentionPolicy", "whenScaled"), policy.WhenScaled)...)
	}
	errs = append(errs, rules.NonNegative(path.Child("replicas"), spec.Replicas)...)
	errs = append(errs, rules.NonNegative(path.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	if spec.Ordinals != nil {
		errs = append(errs, rules.NonNegative(path.Child("ordinals.start"), &spec.Ordinals.Start)...)
	}
	errs = append(errs, validateSelector(spec.Selector, path, "statefulset")...)
	return append(errs, validateTemplate(&spec.Template, spec.Selector, path, "StatefulSet")...)
}

func validateStatefulSetStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case "":
		return field.ErrorList{field.Required(path, "")}
	case appsv1.OnDeleteStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(path.Child("rollingUpdate"), s.RollingUpdate,
				"only allowed for updateStrategy '"+string(appsv1.RollingUpdateStatefulSetStrategyType)+"'")}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if s.RollingUpdate == nil {
			return nil
		}
		errs := rules.NonNegative(path.Child("rollingUpdate", "partition"), s.RollingUpdate.Partition)
		if n := s.RollingUpdate.MaxUnavailable; n != nil {
			path = path.Child("rollingUpdate", "maxUnavailable")
			errs = append(errs, rules.IntOrPercent(path, n)...)
			if rules.IsZero(n) {
				errs = append(errs, field.Invalid(path, n.String(), "cannot be 0"))
			}
			errs = append(errs, rules.AtMost100Percent(path, n)...)
		}
		return errs
	}
	return field.ErrorList{field.Invalid(path, *s, "must be '"+string(appsv1.RollingUpdateStatefulSetStrategyType)+
		"' or '"+string(appsv1.OnDeleteStatefulSetStrategyType)+"'")}
}

func validateRetention(path *field.Path, policy appsv1.PersistentVolumeClaimRetentionPolicyType) field.ErrorList {
	switch policy {
	case appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, policy, []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType})}
}

func validateStatefulSetUpdate(obj, old api.Object) field.ErrorList {
	s, o := obj.(*appsv1.StatefulSet), old.(*appsv1.StatefulSet)
	errs := validateStatefulSet(s)
	rest := s.Spec.DeepCopy()
	rest.Replicas = o.Spec.Replicas
	rest.Template = o.Spec.Template
	rest.UpdateStrategy = o.Spec.UpdateStrategy
	rest.MinReadySeconds = o.Spec.MinReadySeconds
	rest.Ordinals = o.Spec.Ordinals
	rest.PersistentVolumeClaimRetentionPolicy = o.Spec.PersistentVolumeClaimRetentionPolicy
	if !equality.Semantic.DeepEqual(*rest, o.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', "+
			"'ordinals', 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}

func validateStatefulSetStatus(obj, old api.Object) field.ErrorList {
	s, o, path := &obj.(*appsv1.StatefulSet).Status, &old.(*appsv1.StatefulSet).Status, field.NewPath("status")
	errs := validation.ValidateNonnegativeField(s.ObservedGeneration, path.Child("observedGeneration"))
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"replicas", s.Replicas}, {"readyReplicas", s.ReadyReplicas}, {"currentReplicas", s.CurrentReplicas},
		{"updatedReplicas", s.UpdatedReplicas}, {"availableReplicas", s.AvailableReplicas},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), &f.value)...)
	}
	if s.CollisionCount != nil {
		errs = append(errs, rules.NonNegative(path.Child("collisionCount"), s.CollisionCount)...)
	}
	errs = append(errs, rules.CountNotLowered(path.Child("collisionCount"), s.CollisionCount, o.CollisionCount)...)
	errs = append(errs, rules.AtMost(path.Child("readyReplicas"), s.ReadyReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("currentReplicas"), s.CurrentReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("updatedReplicas"), s.UpdatedReplicas, s.Replicas, "status.replicas")...)
	errs = append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.Replicas, "status.replicas")...)
	return append(errs, rules.AtMost(path.Child("availableReplicas"), s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")...)
}
