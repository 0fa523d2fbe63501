package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	namepath "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func events() *api.Resource {
	doc := corev1.Event{}.SwaggerDoc()
	name := api.NameColumn()
	name.Priority = 1
	return &api.Resource{
		GroupVersionKind: kind("Event"),
		Plural:           "events",
		Singular:         "event",
		ShortNames:       []string{"ev"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Event) },
		NewList:          func() runtime.Object { return new(corev1.EventList) },
		CreateOnUpdate:   true,
		ValidateName:     namepath.ValidatePathSegmentName,
		Versions:         []api.Version{eventsV1()},
		Validate:         validateEvent,
		ValidateUpdate:   validateEventUpdate,
		FieldNames: []string{
			"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
			"reason", "reportingComponent", "source", "type",
			// The same under their names in events.k8s.io.
			"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion",
			"regarding.resourceVersion", "regarding.fieldPath", "reportingController",
		},
		FieldValue: eventField,
		Columns: []api.Column{
			api.Text("Last Seen", doc["lastTimestamp"]),
			api.Text("Type", doc["type"]),
			api.Text("Reason", doc["reason"]),
			api.Text("Object", doc["involvedObject"]),
			api.Wide("Subobject", doc["involvedObject"]),
			api.Wide("Source", doc["source"]),
			api.Text("Message", doc["message"]),
			api.Wide("First Seen", doc["firstTimestamp"]),
			api.Wide("Count", doc["count"]),
			name,
		},
		Cells: eventCells,
	}
}

func eventField(obj api.Object, name string) string {
	e := obj.(*corev1.Event)
	if rest, ok := strings.CutPrefix(name, "regarding."); ok {
		name = "involvedObject." + rest
	}
	switch name {
	case "involvedObject.kind":
		return e.InvolvedObject.Kind
	case "involvedObject.namespace":
		return e.InvolvedObject.Namespace
	case "involvedObject.name":
		return e.InvolvedObject.Name
	case "involvedObject.uid":
		return string(e.InvolvedObject.UID)
	case "involvedObject.apiVersion":
		return e.InvolvedObject.APIVersion
	case "involvedObject.resourceVersion":
		return e.InvolvedObject.ResourceVersion
	case "involvedObject.fieldPath":
		return e.InvolvedObject.FieldPath
	case "reason":
		return e.Reason
	case "reportingComponent", "reportingController":
		return e.ReportingController
	case "source":
		return cmp.Or(e.Source.Component, e.ReportingController)
	case "type":
		return e.Type
	}
	return ""
}

// isNew says whether an event is of the form that events.k8s.io introduced; the other form has looser rules.
func isNew(e *corev1.Event) bool { return !e.EventTime.IsZero() }

func validateEvent(obj api.Object) field.ErrorList {
	e := obj.(*corev1.Event)
	var p problems
	p.eventNamespace(e)
	if !isNew(e) {
		return p.list
	}
	const longest = 128
	if p.some(field.NewPath("reportingController"), e.ReportingController) {
		p.qualified(field.NewPath("reportingController"), e.ReportingController)
	}
	if p.some(field.NewPath("reportingInstance"), e.ReportingInstance) && len(e.ReportingInstance) > longest {
		p.invalid(field.NewPath("reportingInstance"), "", fmt.Sprintf("can have at most %v characters", longest))
	}
	if p.some(field.NewPath("action"), e.Action) && len(e.Action) > longest {
		p.invalid(field.NewPath("action"), "", fmt.Sprintf("can have at most %v characters", longest))
	}
	if p.some(field.NewPath("reason"), e.Reason) && len(e.Reason) > longest {
		p.invalid(field.NewPath("reason"), "", fmt.Sprintf("can have at most %v characters", longest))
	}
	if len(e.Message) > 1024 {
		p.invalid(field.NewPath("message"), "", "can have at most 1024 characters")
	}
	return p.list
}

// eventNamespace checks that an event lives beside its object, or in the default namespace for one without.
func (p *problems) eventNamespace(e *corev1.Event) {
	at := field.NewPath("involvedObject", "namespace")
	if e.InvolvedObject.Namespace == "" {
		if e.Namespace != metav1.NamespaceNone && e.Namespace != metav1.NamespaceDefault {
			if !isNew(e) || e.Namespace != metav1.NamespaceSystem {
				p.invalid(at, e.InvolvedObject.Namespace, "does not match event.namespace")
			}
		}
	} else if e.Namespace != e.InvolvedObject.Namespace {
		p.invalid(at, e.InvolvedObject.Namespace, "does not match event.namespace")
	}
	p.messages(field.NewPath("metadata", "namespace"), e.Namespace, utilvalidation.IsDNS1123Subdomain(e.Namespace))
}

func validateEventUpdate(obj, old api.Object) field.ErrorList {
	e, before := obj.(*corev1.Event), old.(*corev1.Event)
	var p problems
	p.all(validateEvent(e))
	if !isNew(before) {
		return p.list
	}
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"involvedObject", e.InvolvedObject, before.InvolvedObject},
		{"reason", e.Reason, before.Reason},
		{"message", e.Message, before.Message},
		{"type", e.Type, before.Type},
		{"eventTime", e.EventTime, before.EventTime},
		{"action", e.Action, before.Action},
		{"related", e.Related, before.Related},
		{"reportingController", e.ReportingController, before.ReportingController},
		{"reportingInstance", e.ReportingInstance, before.ReportingInstance},
	} {
		if !equality.Semantic.DeepEqual(f.now, f.was) {
			p.immutable(field.NewPath(f.name), f.now, f.was)
		}
	}
	return p.list
}

func eventCells(obj api.Object, now time.Time) []any {
	e := obj.(*corev1.Event)
	first := ago(e.FirstTimestamp.Time, now)
	if e.FirstTimestamp.IsZero() {
		first = ago(e.EventTime.Time, now)
	}
	last := first
	if !e.LastTimestamp.IsZero() {
		last = ago(e.LastTimestamp.Time, now)
	}
	count := e.Count
	if e.Series != nil {
		last, count = ago(e.Series.LastObservedTime.Time, now), e.Series.Count
	} else if count == 0 {
		count = 1
	}
	target := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		target += "/" + e.InvolvedObject.Name
	}
	return []any{last, e.Type, e.Reason, target, e.InvolvedObject.FieldPath, eventSource(e), strings.TrimSpace(e.Message),
		first, int64(count), e.Name}
}

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

// eventSource names who reported an event, and from where.
func eventSource(e *corev1.Event) string {
	component := cmp.Or(e.Source.Component, e.ReportingController)
	host := cmp.Or(e.Source.Host, e.ReportingInstance)
	if host == "" {
		return component
	}
	return component + ", " + host
}
