package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func persistentVolumeClaims() *api.Resource {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind:     kind("PersistentVolumeClaim"),
		Plural:               "persistentvolumeclaims",
		Singular:             "persistentvolumeclaim",
		ShortNames:           []string{"pvc"},
		Namespaced:           true,
		New:                  func() api.Object { return new(corev1.PersistentVolumeClaim) },
		NewList:              func() runtime.Object { return new(corev1.PersistentVolumeClaimList) },
		Subresources:         []api.Subresource{api.Status()},
		Default:              defaultClaim,
		PrepareCreate:        prepareClaim,
		PrepareUpdate:        func(obj, old api.Object) { normalizeDataSource(&obj.(*corev1.PersistentVolumeClaim).Spec) },
		Validate:             validateClaim,
		ValidateUpdate:       validateClaimUpdate,
		ValidateStatusUpdate: validateClaimStatus,
		Warnings: func(obj, old api.Object) []string {
			pvc := obj.(*corev1.PersistentVolumeClaim)
			return claimWarnings(nil, pvc.Annotations, &pvc.Spec)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Status", status["phase"]),
			api.Text("Volume", spec["volumeName"]),
			api.Text("Capacity", status["capacity"]),
			api.Text("Access Modes", status["accessModes"]),
			api.Text("StorageClass", "StorageClass of the pvc"),
			api.Text("VolumeAttributesClass", spec["volumeAttributesClassName"]),
			api.AgeColumn(),
			api.Wide("VolumeMode", spec["volumeMode"]),
		},
		Cells: claimCells,
	}
}

func defaultClaim(obj api.Object) {
	pvc := obj.(*corev1.PersistentVolumeClaim)
	setDefault(&pvc.Status.Phase, corev1.ClaimPending)
	defaultClaimSpec(&pvc.Spec)
}

func prepareClaim(obj api.Object) {
	pvc := obj.(*corev1.PersistentVolumeClaim)
	pvc.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	normalizeDataSource(&pvc.Spec)
}

// normalizeDataSource keeps dataSource and its successor dataSourceRef in step, where the old field can say it.
func normalizeDataSource(spec *corev1.PersistentVolumeClaimSpec) {
	switch {
	case spec.DataSource != nil && spec.DataSourceRef == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: spec.DataSource.APIGroup, Kind: spec.DataSource.Kind, Name: spec.DataSource.Name,
		}
	case spec.DataSource == nil && spec.DataSourceRef != nil && (spec.DataSourceRef.Namespace == nil || *spec.DataSourceRef.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: spec.DataSourceRef.APIGroup, Kind: spec.DataSourceRef.Kind, Name: spec.DataSourceRef.Name,
		}
	}
}

func validateClaim(obj api.Object) field.ErrorList {
	var p problems
	p.claimSpec(&obj.(*corev1.PersistentVolumeClaim).Spec, field.NewPath("spec"))
	return p.list
}

// ValidateClaimTemplate returns what is wrong with the template of a claim found at path.
func ValidateClaimTemplate(t *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	var p problems
	p.all(metavalidation.ValidateLabels(t.Labels, path.Child("metadata", "labels")))
	p.annotations(t.Annotations, path.Child("metadata", "annotations"))
	p.templateMeta(&t.ObjectMeta, path.Child("metadata"))
	p.claimSpec(&t.Spec, path.Child("spec"))
	return p.list
}

// templateMeta checks that metadata of a template has no more than labels and annotations.
func (p *problems) templateMeta(meta *metav1.ObjectMeta, path *field.Path) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", meta.Name != ""}, {"generateName", meta.GenerateName != ""}, {"namespace", meta.Namespace != ""},
		{"ownerReferences", len(meta.OwnerReferences) > 0}, {"finalizers", len(meta.Finalizers) > 0},
	} {
		if f.set {
			p.forbidden(path.Child(f.name), "cannot be set for an ephemeral volume")
		}
	}
}

func (p *problems) claimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	if len(spec.AccessModes) == 0 {
		p.required(path.Child("accessModes"), "at least 1 access mode is required")
	}
	p.selector(path.Child("selector"), spec.Selector)
	p.accessModes(spec.AccessModes, path.Child("accessModes"))
	storage, ok := spec.Resources.Requests[corev1.ResourceStorage]
	at := path.Child("resources").Key(string(corev1.ResourceStorage))
	if !ok {
		p.required(at, "")
	} else if storage.Sign() <= 0 {
		p.invalid(at, storage.String(), "must be greater than zero")
	}
	if spec.StorageClassName != nil && *spec.StorageClassName != "" {
		p.messages(path.Child("storageClassName"), *spec.StorageClassName, utilvalidation.IsDNS1123Subdomain(*spec.StorageClassName))
	}
	if c := spec.VolumeAttributesClassName; c != nil && *c != "" {
		p.messages(path.Child("volumeAttributesClassName"), *c, utilvalidation.IsDNS1123Subdomain(*c))
	}
	optional(p, path.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	p.dataSources(spec, path)
}

func (p *problems) accessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) {
	valid := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	pod, other := false, false
	for _, m := range modes {
		if !slices.Contains(valid, m) {
			p.list = append(p.list, field.NotSupported(path, m, valid))
		}
		pod = pod || m == corev1.ReadWriteOncePod
		other = other || m != corev1.ReadWriteOncePod
	}
	if pod && other {
		p.forbidden(path, "may not use ReadWriteOncePod with other access modes")
	}
}

func (p *problems) dataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	check := func(path *field.Path, group *string, kind, name string) {
		p.some(path.Child("name"), name)
		p.some(path.Child("kind"), kind)
		if g := group; g == nil || *g == "" {
			if kind != "PersistentVolumeClaim" {
				p.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
			}
		} else {
			p.messages(path.Child("apiGroup"), *g, utilvalidation.IsDNS1123Subdomain(*g))
		}
	}
	if d := spec.DataSource; d != nil {
		check(path.Child("dataSource"), d.APIGroup, d.Kind, d.Name)
	}
	r := spec.DataSourceRef
	if r == nil {
		return
	}
	check(path.Child("dataSourceRef"), r.APIGroup, r.Kind, r.Name)
	if r.Namespace != nil && *r.Namespace != "" {
		p.messages(path.Child("dataSourceRef", "namespace"), *r.Namespace, utilvalidation.IsDNS1123Label(*r.Namespace))
		if spec.DataSource != nil {
			p.invalid(path, spec.DataSource.Name, "may not be specified when dataSourceRef.namespace is specified")
		}
		return
	}
	if d := spec.DataSource; d != nil {
		same := d.Kind == r.Kind && d.Name == r.Name && equality.Semantic.DeepEqual(d.APIGroup, r.APIGroup)
		if !same {
			p.invalid(path, path.Child("dataSource").String(), "must match dataSourceRef")
		}
	}
}

func validateClaimUpdate(obj, old api.Object) field.ErrorList {
	pvc, before := obj.(*corev1.PersistentVolumeClaim), old.(*corev1.PersistentVolumeClaim)
	var p problems
	path := field.NewPath("spec")
	p.all(validateClaim(pvc))
	now, was := pvc.Spec.DeepCopy(), before.Spec.DeepCopy()
	// Binding sets the volume once.
	if was.VolumeName == "" {
		now.VolumeName = ""
	}
	bound := before.Status.Phase == corev1.ClaimBound
	expanded, size := now.Resources.Requests[corev1.ResourceStorage], was.Resources.Requests[corev1.ResourceStorage]
	if bound && now.Resources.Requests != nil {
		now.Resources.Requests[corev1.ResourceStorage] = size
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
		if expanded.Cmp(size) < 0 {
			// A wish that has failed may be taken back, as long as it stays above what the volume has.
			capacity := before.Status.Capacity[corev1.ResourceStorage]
			if expanded.Cmp(capacity) < 0 {
				p.forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity")
			} else if capacity.IsZero() || len(before.Status.AllocatedResources) == 0 {
				p.forbidden(path.Child("resources", "requests", "storage"), "field can not be less than previous value")
			}
		}
	}
	// A claim of before classes were a field may take over the class of its annotation.
	if was.StorageClassName == nil && now.StorageClassName != nil && *now.StorageClassName == before.Annotations[corev1.BetaStorageClassAnnotation] {
		now.StorageClassName = nil
	} else if was.StorageClassName == nil && was.VolumeName == "" && now.StorageClassName != nil {
		// The default class reaches claims that were made before it, while they are unbound.
		now.StorageClassName = nil
	}
	if was.VolumeName == "" && now.DataSourceRef != nil && was.DataSourceRef == nil && equality.Semantic.DeepEqual(now.DataSource, was.DataSource) {
		now.DataSourceRef = nil
	}
	if !equality.Semantic.DeepEqual(now, was) {
		p.forbidden(path, fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(was, now)))
	}
	if !equality.Semantic.DeepEqual(pvc.Spec.VolumeMode, before.Spec.VolumeMode) {
		p.immutable(path.Child("volumeMode"), pvc.Spec.VolumeMode, before.Spec.VolumeMode)
	}
	applied := before.Status.CurrentVolumeAttributesClassName
	if c := pvc.Spec.VolumeAttributesClassName; (c == nil || *c == "") && applied != nil && *applied != "" &&
		before.Spec.VolumeAttributesClassName != nil && *before.Spec.VolumeAttributesClassName != "" {
		p.forbidden(path.Child("volumeAttributesClassName"), "update to nil or empty is forbidden when status.currentVolumeAttributesClassName is set")
	}
	return p.list
}

func validateClaimStatus(obj, _ api.Object) field.ErrorList {
	pvc := obj.(*corev1.PersistentVolumeClaim)
	var p problems
	status := field.NewPath("status")
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", pvc.Status.Capacity}, {"allocatedResources", pvc.Status.AllocatedResources}} {
		for _, name := range sortedNames(part.list) {
			p.quantity(name, part.list[name], status.Child(part.name).Key(string(name)))
		}
	}
	for name, s := range pvc.Status.AllocatedResourceStatuses {
		oneOf(&p, status.Child("allocatedResourceStatus").Key(string(name)), s, corev1.PersistentVolumeClaimControllerResizeInProgress,
			corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
			corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	if m := pvc.Status.ModifyVolumeStatus; m != nil {
		exactlyOneOf(&p, status.Child("modifyVolumeStatus", "status"), m.Status, corev1.PersistentVolumeClaimModifyVolumePending,
			corev1.PersistentVolumeClaimModifyVolumeInProgress, corev1.PersistentVolumeClaimModifyVolumeInfeasible)
	}
	return p.list
}

func claimWarnings(path *field.Path, annotations map[string]string, spec *corev1.PersistentVolumeClaimSpec) []string {
	at := func(name string) *field.Path {
		if path == nil {
			return field.NewPath(name)
		}
		return path.Child(name)
	}
	var w warnings
	if _, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		w.add(at("metadata").Child("annotations").Key(corev1.BetaStorageClassAnnotation),
			`deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", spec.Resources.Requests}, {"limits", spec.Resources.Limits}} {
		if q, ok := part.list[corev1.ResourceStorage]; ok {
			w.fractional(corev1.ResourceStorage, q, at("spec").Child("resources", part.name))
		}
	}
	return w.list
}

func claimCells(obj api.Object, now time.Time) []any {
	pvc := obj.(*corev1.PersistentVolumeClaim)
	phase := string(pvc.Status.Phase)
	if pvc.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	var capacity, modes string
	if pvc.Spec.VolumeName != "" {
		q := pvc.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = q.String(), shortModes(pvc.Status.AccessModes)
	}
	class := ""
	if c, ok := pvc.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = c
	} else if pvc.Spec.StorageClassName != nil {
		class = *pvc.Spec.StorageClassName
	}
	return []any{pvc.Name, phase, pvc.Spec.VolumeName, capacity, modes, class, orUnset(pvc.Spec.VolumeAttributesClassName),
		api.Age(pvc.CreationTimestamp, now), orUnset((*string)(pvc.Spec.VolumeMode))}
}

func orUnset(s *string) string {
	if s == nil {
		return "<unset>"
	}
	return *s
}

// shortModes abbreviates access modes, each once and always in the same order.
func shortModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}
