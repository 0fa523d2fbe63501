package storage

import (
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func csiDrivers() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		Plural:                      "csidrivers",
		Singular:                    "csidriver",
		New:                         func() api.Object { return new(storagev1.CSIDriver) },
		NewList:                     func() runtime.Object { return new(storagev1.CSIDriverList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
		Default:                     defaultCSIDriver,
		Validate: func(obj api.Object) field.ErrorList {
			driver := obj.(*storagev1.CSIDriver)
			errs := validateDriverName(driver.Name, field.NewPath("name"))
			return append(errs, validateCSIDriverSpec(&driver.Spec, field.NewPath("spec"))...)
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			spec, o, at := &obj.(*storagev1.CSIDriver).Spec, &old.(*storagev1.CSIDriver).Spec, field.NewPath("spec")
			errs := validateCSIDriverSpec(spec, at)
			errs = append(errs, validation.ValidateImmutableField(spec.AttachRequired, o.AttachRequired, at.Child("attachedRequired"))...)
			errs = append(errs, validation.ValidateImmutableField(spec.FSGroupPolicy, o.FSGroupPolicy, at.Child("fsGroupPolicy"))...)
			return append(errs, validation.ValidateImmutableField(spec.VolumeLifecycleModes, o.VolumeLifecycleModes, at.Child("volumeLifecycleModes"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			{Name: "AttachRequired", Type: "boolean", Description: rules.Doc(storagev1.CSIDriverSpec{}, "attachRequired")},
			{Name: "PodInfoOnMount", Type: "boolean", Description: rules.Doc(storagev1.CSIDriverSpec{}, "podInfoOnMount")},
			{Name: "StorageCapacity", Type: "boolean", Description: rules.Doc(storagev1.CSIDriverSpec{}, "storageCapacity")},
			api.Text("TokenRequests", rules.Doc(storagev1.CSIDriverSpec{}, "tokenRequests")),
			{Name: "RequiresRepublish", Type: "boolean", Description: rules.Doc(storagev1.CSIDriverSpec{}, "requiresRepublish")},
			api.Text("Modes", rules.Doc(storagev1.CSIDriverSpec{}, "volumeLifecycleModes")),
			api.AgeColumn(),
		},
		Cells: csiDriverCells,
	}
}

func defaultCSIDriver(obj api.Object) {
	spec := &obj.(*storagev1.CSIDriver).Spec
	rules.SetDefault(&spec.AttachRequired, true)
	rules.SetDefault(&spec.PodInfoOnMount, false)
	rules.SetDefault(&spec.StorageCapacity, false)
	rules.SetDefault(&spec.RequiresRepublish, false)
	rules.SetDefault(&spec.SELinuxMount, false)
	rules.SetDefault(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func csiDriverCells(obj api.Object, now time.Time) []any {
	driver := obj.(*storagev1.CSIDriver)
	spec := &driver.Spec
	attach, tokens, modes := true, "<unset>", "<none>"
	if spec.AttachRequired != nil {
		attach = *spec.AttachRequired
	}
	if spec.TokenRequests != nil {
		var audiences []string
		for _, t := range spec.TokenRequests {
			audiences = append(audiences, t.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	if len(spec.VolumeLifecycleModes) > 0 {
		var list []string
		for _, mode := range spec.VolumeLifecycleModes {
			list = append(list, string(mode))
		}
		modes = strings.Join(list, ",")
	}
	return []any{driver.Name, attach, rules.Value(spec.PodInfoOnMount), rules.Value(spec.StorageCapacity), tokens,
		rules.Value(spec.RequiresRepublish), modes, api.Age(driver.CreationTimestamp, now)}
}

// validateDriverName checks the name of a CSI driver, which is a domain name in any case.
func validateDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > 63 {
		errs = append(errs, field.TooLong(at, name, 63))
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}

func validateCSIDriverSpec(spec *storagev1.CSIDriverSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value *bool
	}{{"attachedRequired", spec.AttachRequired}, {"podInfoOnMount", spec.PodInfoOnMount}, {"storageCapacity", spec.StorageCapacity}, {"seLinuxMount", spec.SELinuxMount}} {
		if f.value == nil {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		}
	}
	policies := []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	if p := spec.FSGroupPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(at.Child("fsGroupPolicy"), *p, policies))
	}
	seen := map[string]bool{}
	const minTokenSeconds, maxTokenSeconds = 10 * 60, 1 << 32
	for i, t := range spec.TokenRequests {
		at := at.Child("tokenRequests").Index(i)
		if seen[t.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
		}
		seen[t.Audience] = true
		if t.ExpirationSeconds == nil {
			continue
		}
		if *t.ExpirationSeconds < minTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *t.ExpirationSeconds, "may not specify a duration less than 10 minutes"))
		}
		if *t.ExpirationSeconds > maxTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *t.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}
	for _, mode := range spec.VolumeLifecycleModes {
		if !slices.Contains(modes, mode) {
			errs = append(errs, field.NotSupported(at.Child("volumeLifecycleModes"), mode, modes))
		}
	}
	return errs
}
