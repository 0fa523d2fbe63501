package api

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Age is how long before now t was, as tables show it: "5m", "3d2h", or "<unknown>" for the zero time.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// NameColumn and AgeColumn are the first and last of the always shown columns of nearly every kind.
func NameColumn() Column {
	return Column{Name: "Name", Type: "string", Format: "name", Description: metaDoc("name")}
}

// AgeColumn is filled with Age(metadata.creationTimestamp).
func AgeColumn() Column {
	return Column{Name: "Age", Type: "string", Description: metaDoc("creationTimestamp")}
}

// Text is an always shown string column; Number the same for integers; Wide and WideNumber show with -o wide only.
func Text(name, description string) Column {
	return Column{Name: name, Type: "string", Description: description}
}

// Number is an always shown integer column.
func Number(name, description string) Column {
	return Column{Name: name, Type: "integer", Description: description}
}

// Wide is a string column shown with -o wide only.
func Wide(name, description string) Column {
	return Column{Name: name, Type: "string", Description: description, Priority: 1}
}

// metaDoc is the API documentation of a field of object metadata.
func metaDoc(name string) string { return metav1.ObjectMeta{}.SwaggerDoc()[name] }
