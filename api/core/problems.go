package core

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// problems collects what a validation finds.
type problems struct{ list field.ErrorList }

func (p *problems) all(list field.ErrorList) { p.list = append(p.list, list...) }

func (p *problems) required(path *field.Path, detail string) {
	p.list = append(p.list, field.Required(path, detail))
}

func (p *problems) invalid(path *field.Path, value any, detail string) {
	p.list = append(p.list, field.Invalid(path, value, detail))
}

// messages makes one error of each message about a value.
func (p *problems) messages(path *field.Path, value any, messages []string) {
	for _, m := range messages {
		p.invalid(path, value, m)
	}
}

func (p *problems) forbidden(path *field.Path, detail string) {
	p.list = append(p.list, field.Forbidden(path, detail))
}

func (p *problems) duplicate(path *field.Path, value any) {
	p.list = append(p.list, field.Duplicate(path, value))
}

func (p *problems) notFound(path *field.Path, value any) {
	p.list = append(p.list, field.NotFound(path, value))
}

func (p *problems) nonNegative(path *field.Path, value int64) {
	p.all(validation.ValidateNonnegativeField(value, path))
}

func (p *problems) port(path *field.Path, port int32) {
	p.messages(path, port, utilvalidation.IsValidPortNum(int(port)))
}

// portOrName checks a port given as a number or a name.
func (p *problems) portOrName(path *field.Path, port intstr.IntOrString) {
	switch port.Type {
	case intstr.Int:
		p.messages(path, port.IntValue(), utilvalidation.IsValidPortNum(port.IntValue()))
	case intstr.String:
		p.messages(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	default:
		p.invalid(path, port, "unknown type")
	}
}

// name checks the required name of another object.
func (p *problems) name(path *field.Path, name string) {
	if name == "" {
		p.required(path, "")
		return
	}
	p.messages(path, name, validation.NameIsDNSSubdomain(name, false))
}

// label checks a required DNS label.
func (p *problems) label(path *field.Path, name string) {
	if name == "" {
		p.required(path, "")
		return
	}
	p.messages(path, name, utilvalidation.IsDNS1123Label(name))
}

// qualified checks a name such as "example.com/key".
func (p *problems) qualified(path *field.Path, name string) {
	p.messages(path, name, utilvalidation.IsQualifiedName(name))
}

// some checks that a required string is there.
func (p *problems) some(path *field.Path, value string) bool {
	if value == "" {
		p.required(path, "")
		return false
	}
	return true
}

func (p *problems) selector(path *field.Path, s *metav1.LabelSelector) {
	p.all(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path))
}

// oneOf checks an optional enumeration.
func oneOf[T ~string](p *problems, path *field.Path, value T, valid ...T) {
	if value != "" && !slices.Contains(valid, value) {
		p.list = append(p.list, field.NotSupported(path, value, valid))
	}
}

// exactlyOneOf checks a required enumeration.
func exactlyOneOf[T ~string](p *problems, path *field.Path, value T, valid ...T) {
	if value == "" {
		p.required(path, "")
		return
	}
	oneOf(p, path, value, valid...)
}

// optional checks an enumeration behind a pointer, where the empty string is no valid value.
func optional[T ~string](p *problems, path *field.Path, value *T, valid ...T) {
	if value != nil && !slices.Contains(valid, *value) {
		p.list = append(p.list, field.NotSupported(path, *value, valid))
	}
}

// immutable checks that a field has not changed.
func (p *problems) immutable(path *field.Path, now, before any) {
	p.all(validation.ValidateImmutableField(now, before, path))
}
