package core

import (
	"bytes"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func configMaps() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ConfigMap"),
		Plural:           "configmaps",
		Singular:         "configmap",
		ShortNames:       []string{"cm"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ConfigMap) },
		NewList:          func() runtime.Object { return new(corev1.ConfigMapList) },
		Validate:         validateConfigMap,
		ValidateUpdate:   validateConfigMapUpdate,
		Columns:          []api.Column{api.NameColumn(), api.Text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), api.AgeColumn()},
		Cells: func(obj api.Object, now time.Time) []any {
			cm := obj.(*corev1.ConfigMap)
			return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), api.Age(cm.CreationTimestamp, now)}
		},
	}
}

func validateConfigMap(obj api.Object) field.ErrorList {
	cm := obj.(*corev1.ConfigMap)
	var p problems
	size := 0
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		at := field.NewPath("data").Key(key)
		p.messages(at, key, utilvalidation.IsConfigMapKey(key))
		if _, both := cm.BinaryData[key]; both {
			p.invalid(at, key, "duplicate of key present in binaryData")
		}
		size += len(cm.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
		p.messages(field.NewPath("binaryData").Key(key), key, utilvalidation.IsConfigMapKey(key))
		size += len(cm.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		p.list = append(p.list, field.TooLong(field.NewPath(""), cm, corev1.MaxSecretSize))
	}
	return p.list
}

func validateConfigMapUpdate(obj, old api.Object) field.ErrorList {
	cm, before := obj.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
	var p problems
	if before.Immutable != nil && *before.Immutable {
		if cm.Immutable == nil || !*cm.Immutable {
			p.forbidden(field.NewPath("immutable"), immutableData)
		}
		if !maps.Equal(cm.Data, before.Data) {
			p.forbidden(field.NewPath("data"), immutableData)
		}
		if !maps.EqualFunc(cm.BinaryData, before.BinaryData, bytes.Equal) {
			p.forbidden(field.NewPath("binaryData"), immutableData)
		}
	}
	p.all(validateConfigMap(cm))
	return p.list
}

const immutableData = "field is immutable when `immutable` is set"
