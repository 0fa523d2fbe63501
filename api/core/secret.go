package core

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func secrets() *api.Resource {
	doc := corev1.Secret{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind: kind("Secret"),
		Plural:           "secrets",
		Singular:         "secret",
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Secret) },
		NewList:          func() runtime.Object { return new(corev1.SecretList) },
		Default:          defaultSecret,
		Validate:         validateSecret,
		ValidateUpdate:   validateSecretUpdate,
		Warnings:         secretWarnings,
		FieldNames:       []string{"type"},
		FieldValue:       func(obj api.Object, _ string) string { return string(obj.(*corev1.Secret).Type) },
		Columns:          []api.Column{api.NameColumn(), api.Text("Type", doc["type"]), api.Text("Data", doc["data"]), api.AgeColumn()},
		Cells: func(obj api.Object, now time.Time) []any {
			s := obj.(*corev1.Secret)
			return []any{s.Name, string(s.Type), int64(len(s.Data)), api.Age(s.CreationTimestamp, now)}
		},
	}
}

// defaultSecret also turns stringData, which clients can only write, into data.
func defaultSecret(obj api.Object) {
	s := obj.(*corev1.Secret)
	setDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func validateSecret(obj api.Object) field.ErrorList {
	s := obj.(*corev1.Secret)
	var p problems
	data, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		p.messages(data.Key(key), key, utilvalidation.IsConfigMapKey(key))
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		p.list = append(p.list, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	p.secretType(s, data)
	return p.list
}

// secretType checks that a secret holds what its type promises.
func (p *problems) secretType(s *corev1.Secret, data *field.Path) {
	needs := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				p.required(data.Key(key), "")
			}
		}
	}
	needsJSON := func(key string) {
		value, ok := s.Data[key]
		if !ok {
			p.required(data.Key(key), "")
		} else if err := json.Unmarshal(value, &map[string]any{}); err != nil {
			p.invalid(data.Key(key), "<secret contents redacted>", err.Error())
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			p.required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")
		}
	case corev1.SecretTypeDockercfg:
		needsJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		needsJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			needs(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			p.required(data.Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		needs(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
}

func validateSecretUpdate(obj, old api.Object) field.ErrorList {
	s, before := obj.(*corev1.Secret), old.(*corev1.Secret)
	var p problems
	p.immutable(field.NewPath("type"), s.Type, before.Type)
	if before.Immutable != nil && *before.Immutable {
		if s.Immutable == nil || !*s.Immutable {
			p.forbidden(field.NewPath("immutable"), immutableData)
		}
		if !maps.EqualFunc(s.Data, before.Data, bytes.Equal) {
			p.forbidden(field.NewPath("data"), immutableData)
		}
	}
	p.all(validateSecret(s))
	return p.list
}

func secretWarnings(obj, _ api.Object) []string {
	s := obj.(*corev1.Secret)
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
