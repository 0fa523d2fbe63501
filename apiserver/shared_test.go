package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestManagedFieldsAreShared(t *testing.T) {
	sets := newFieldSets()
	pod := func(fields ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for _, f := range fields {
			p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(f)})
		}
		return p
	}
	a, b := pod(`{"f:a":{}}`, `{"f:b":{}}`), pod(`{"f:b":{}}`, `{"f:c":{}}`)
	sets.share(a)
	before := b.ManagedFields
	own := before[0].FieldsV1
	sets.share(b)
	if a.ManagedFields[1].FieldsV1 != b.ManagedFields[0].FieldsV1 {
		t.Error("equal sets are kept twice")
	}
	if got := b.ManagedFields[1].FieldsV1.GetRawString(); got != `{"f:c":{}}` {
		t.Errorf("another set became %s", got)
	}
	if before[0].FieldsV1 != own {
		t.Error("entries that others may have were changed")
	}
}
