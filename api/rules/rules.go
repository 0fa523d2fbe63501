// Package rules holds the checks and small tools that the kinds of several API groups share.
package rules

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SetDefault points p at value when it points nowhere.
func SetDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// Value is what p points at, or the zero value.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Doc is the API documentation of a field.
func Doc(t interface{ SwaggerDoc() map[string]string }, name string) string {
	return t.SwaggerDoc()[name]
}

// NonNegative checks an optional count.
func NonNegative(path *field.Path, n *int32) field.ErrorList {
	if n == nil {
		return nil
	}
	return validation.ValidateNonnegativeField(int64(*n), path)
}

// AtMost checks that n does not exceed the field called name, which is limit.
func AtMost(path *field.Path, n, limit int32, name string) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, "cannot be greater than "+name)}
}

// CountNotLowered checks that a counter of a status has not gone back.
func CountNotLowered(path *field.Path, n, old *int32) field.ErrorList {
	switch {
	case old == nil, n != nil && *n >= *old:
		return nil
	case n == nil:
		return field.ErrorList{field.Invalid(path, n, "cannot be decremented")}
	}
	return field.ErrorList{field.Invalid(path, *n, "cannot be decremented")}
}

// IntOrPercent checks a count that may be given as a percentage.
func IntOrPercent(path *field.Path, v *intstr.IntOrString) field.ErrorList {
	var errs field.ErrorList
	switch {
	case v == nil:
	case v.Type == intstr.String:
		for _, msg := range utilvalidation.IsValidPercent(v.StrVal) {
			errs = append(errs, field.Invalid(path, *v, msg))
		}
	case v.Type == intstr.Int:
		errs = validation.ValidateNonnegativeField(int64(v.IntValue()), path)
	default:
		errs = append(errs, field.Invalid(path, *v, "must be an integer or percentage (e.g '5%%')"))
	}
	return errs
}

func percent(v *intstr.IntOrString) (int, bool) {
	if v == nil || v.Type != intstr.String || len(utilvalidation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}

// AtMost100Percent checks a percentage; numbers are not its concern.
func AtMost100Percent(path *field.Path, v *intstr.IntOrString) field.ErrorList {
	if n, ok := percent(v); ok && n > 100 {
		return field.ErrorList{field.Invalid(path, *v, "must not be greater than 100%")}
	}
	return nil
}

// IsZero reports whether v is absent, 0 or 0%.
func IsZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if n, ok := percent(v); ok {
		return n == 0
	}
	return v.Type == intstr.Int && v.IntVal == 0
}
