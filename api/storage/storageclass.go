package storage

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func storageClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("StorageClass"),
		Plural:           "storageclasses",
		Singular:         "storageclass",
		ShortNames:       []string{"sc"},
		New:              func() api.Object { return new(storagev1.StorageClass) },
		NewList:          func() runtime.Object { return new(storagev1.StorageClassList) },
		Default: func(obj api.Object) {
			sc := obj.(*storagev1.StorageClass)
			rules.SetDefault(&sc.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			rules.SetDefault(&sc.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Validate: func(obj api.Object) field.ErrorList { return validateStorageClass(obj.(*storagev1.StorageClass)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			sc, o := obj.(*storagev1.StorageClass), old.(*storagev1.StorageClass)
			var errs field.ErrorList
			if !maps.Equal(sc.Parameters, o.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			if sc.Provisioner != o.Provisioner {
				errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
			}
			if rules.Value(sc.ReclaimPolicy) != rules.Value(o.ReclaimPolicy) {
				errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), "updates to reclaimPolicy are forbidden."))
			}
			return append(errs, validation.ValidateImmutableField(sc.VolumeBindingMode, o.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Provisioner", rules.Doc(storagev1.StorageClass{}, "provisioner")),
			api.Text("ReclaimPolicy", rules.Doc(storagev1.StorageClass{}, "reclaimPolicy")),
			api.Text("VolumeBindingMode", rules.Doc(storagev1.StorageClass{}, "volumeBindingMode")),
			api.Text("AllowVolumeExpansion", rules.Doc(storagev1.StorageClass{}, "allowVolumeExpansion")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			sc := obj.(*storagev1.StorageClass)
			name := sc.Name
			for _, annotation := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
				if sc.Annotations[annotation] == "true" {
					name += " (default)"
					break
				}
			}
			reclaim, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
			if sc.ReclaimPolicy != nil {
				reclaim = *sc.ReclaimPolicy
			}
			if sc.VolumeBindingMode != nil {
				mode = *sc.VolumeBindingMode
			}
			return []any{name, sc.Provisioner, string(reclaim), string(mode), rules.Value(sc.AllowVolumeExpansion), api.Age(sc.CreationTimestamp, now)}
		},
	}
}

const (
	maxParameters    = 512
	maxParametersLen = 256 * 1024
)

func validateStorageClass(sc *storagev1.StorageClass) field.ErrorList {
	var errs field.ErrorList
	if sc.Provisioner == "" {
		errs = append(errs, field.Required(field.NewPath("provisioner"), sc.Provisioner))
	} else {
		for _, msg := range utilvalidation.IsQualifiedName(strings.ToLower(sc.Provisioner)) {
			errs = append(errs, field.Invalid(field.NewPath("provisioner"), sc.Provisioner, msg))
		}
	}
	errs = append(errs, validateParameters(sc.Parameters, true, field.NewPath("parameters"))...)
	policies := []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain}
	if p := rules.Value(sc.ReclaimPolicy); p != "" && !slices.Contains(policies, p) {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), p, policies))
	}
	modes := []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}
	if sc.VolumeBindingMode == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else if !slices.Contains(modes, *sc.VolumeBindingMode) {
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *sc.VolumeBindingMode, modes))
	}
	for i, term := range sc.AllowedTopologies {
		at := field.NewPath("allowedTopologies").Index(i)
		seen := map[string]bool{}
		for j, e := range term.MatchLabelExpressions {
			at := at.Child("matchLabelExpressions").Index(j)
			errs = append(errs, metavalidation.ValidateLabelName(e.Key, at.Child("key"))...)
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			if seen[e.Key] {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			seen[e.Key] = true
		}
	}
	return errs
}

func validateParameters(parameters map[string]string, optional bool, at *field.Path) field.ErrorList {
	if len(parameters) == 0 && !optional {
		return field.ErrorList{field.Required(at, "must contain at least one key/value pair")}
	}
	if n := len(parameters); n > maxParameters {
		return field.ErrorList{field.TooMany(at, n, maxParameters)}
	}
	var errs field.ErrorList
	total := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(at, key, "field can not be empty."))
		}
		total += len(key) + len(value)
	}
	if total > maxParametersLen {
		errs = append(errs, field.TooLong(at, "", maxParametersLen))
	}
	return errs
}
