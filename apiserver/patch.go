package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"proa/api"
	"proa/apiserver/request"
)

// maxOperations bounds the operations of a JSON patch.
const maxOperations = 10000

func (x *exchange) patch() error {
	kind := patchType(x.r.Header.Get("Content-Type"))
	switch kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
	default:
		return unsupportedMedia(string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType))
	}
	var opts metav1.PatchOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	data, err := readBody(x.r)
	if err != nil {
		return err
	}
	t := x.target(opts.FieldManager, opts.DryRun, &opts)
	o, created, err := x.s.patch(x.r.Context(), &t, kind, data, &opts)
	if err != nil {
		return err
	}
	return x.writeObject(createdCode(created), o)
}

// patchType is the kind of patch that a content type names. Its parameters do not matter.
func patchType(contentType string) types.PatchType {
	media, _, _ := strings.Cut(contentType, ";")
	return types.PatchType(strings.TrimSpace(media))
}

// patch changes an object, through t's subresource.
func (s *Server) patch(ctx context.Context, t *target, kind types.PatchType, data []byte, opts *metav1.PatchOptions) (*object, bool, error) {
	if err := badOptions("PatchOptions", validation.ValidatePatchOptions(opts, kind)); err != nil {
		return nil, false, err
	}
	if !utf8.Valid(data) {
		return nil, false, apierrors.NewBadRequest("the patch is not valid UTF-8")
	}
	how := validationOf(opts.FieldValidation)
	warn := func(text string) { request.Warn(ctx, text) }
	r := &replace{target: *t, retry: true}
	if err := s.rulesOf(r); err != nil {
		return nil, false, err
	}
	if kind == types.ApplyYAMLPatchType {
		return s.apply(ctx, r, data, opts)
	}
	change, complaints, err := patcher(t.served, kind, data, how)
	if err != nil {
		return nil, false, err
	}
	r.manage, r.keepsUID = s.manage(t), true
	r.change = func(old api.Object) (api.Object, error) {
		shown, err := t.fromStorage(old)
		if err != nil {
			return nil, err
		}
		original, err := json.Marshal(typed(t.served, shown))
		if err != nil {
			return nil, err
		}
		patched, err := change(original)
		if err != nil {
			return nil, err
		}
		obj := t.newObject()
		strict, err := decodeJSON(patched, obj, how)
		if err != nil {
			return nil, invalidPatch(kind, data, patched, err)
		}
		if err := expectKind(obj.GetObjectKind().GroupVersionKind(), t.gvk); err != nil {
			return nil, err
		}
		if err := complain(warn, slices.Concat(complaints, strict), how); err != nil {
			return nil, err
		}
		out, err := t.toStorage(obj)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := t.checkName(out); err != nil {
			return nil, err
		}
		if out.GetResourceVersion() == "" {
			out.SetResourceVersion(old.GetResourceVersion())
		}
		return out, nil
	}
	return s.replace(ctx, r)
}

// invalidPatch says that what a patch has made of an object is none of its kind.
func invalidPatch(kind types.PatchType, patch, patched []byte, err error) error {
	shown := string(patched)
	if kind == types.StrategicMergePatchType {
		var m map[string]any
		if json.Unmarshal(patch, &m) == nil {
			shown = fmt.Sprintf("%+v", m)
		}
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, err.Error())})
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// limitCopies keeps the copies of a JSON patch, each of which can double an object, to the size that a body may have.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxBody })

// operation is what an operation of a JSON patch may say.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// patcher returns the function that a patch stands for, and complaints about the patch itself: what it says twice.
func patcher(v *served, kind types.PatchType, data []byte, how fieldValidation) (change func(original []byte) ([]byte, error), strict []error, err error) {
	if kind == types.JSONPatchType {
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		if len(patch) > maxOperations {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(patch)))
		}
		if how != metav1.FieldValidationIgnore {
			var operations []operation
			if strict, err = kjson.UnmarshalStrict(data, &operations); err != nil {
				return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
			}
			for i, err := range strict {
				strict[i] = fmt.Errorf("json patch %w", err)
			}
		}
		limitCopies()
		return func(original []byte) ([]byte, error) {
			out, err := applyOperations(patch, original)
			if err != nil {
				return nil, unprocessable(err)
			}
			return out, nil
		}, strict, nil
	}
	var patch map[string]any
	if how == metav1.FieldValidationIgnore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &patch)
	} else {
		strict, err = kjson.UnmarshalStrict(data, &patch)
	}
	if err == nil && patch == nil {
		err = errors.New("null is no patch")
	}
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if kind == types.MergePatchType {
		return func(original []byte) ([]byte, error) {
			out, err := jsonpatch.MergePatch(original, data)
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			return out, nil
		}, strict, nil
	}
	example := v.newObject()
	return func(original []byte) ([]byte, error) {
		var doc map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(original, &doc); err != nil {
			return nil, err
		}
		out, err := strategicpatch.StrategicMergeMapPatch(doc, runtime.DeepCopyJSON(patch), example)
		switch {
		case errors.Is(err, mergepatch.ErrNoListOfLists):
			return nil, unprocessable(err)
		case err != nil:
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return json.Marshal(out)
	}, strict, nil
}

// applyOperations carries out a JSON patch. The library that does it gives up on some operations with a panic.
func applyOperations(patch jsonpatch.Patch, original []byte) (out []byte, err error) {
	defer func() {
		if failure := recover(); failure != nil {
			err = errors.New("the operations do not apply to the object")
		}
	}()
	return patch.Apply(original)
}

// apply merges a configuration into the object, which it may create.
func (s *Server) apply(ctx context.Context, r *replace, data []byte, opts *metav1.PatchOptions) (*object, bool, error) {
	t := &r.target
	plain, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	config := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(plain, &config.Object); err != nil {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if config.GetAPIVersion() != t.gvk.GroupVersion().String() {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("Incorrect version specified in apply patch. Specified patch version: %s, expected: %s",
			config.GetAPIVersion(), t.gvk.GroupVersion()))
	}
	if err := expectKind(config.GroupVersionKind(), t.gvk); err != nil {
		return nil, false, err
	}
	if config.GetName() != "" {
		if err := t.checkName(config.DeepCopy()); err != nil {
			return nil, false, err
		}
	}
	how := validationOf(opts.FieldValidation)
	strict, err := decodeInto(plain, asJSON, t.newObject(), t.gvk, how)
	if err != nil {
		return nil, false, err
	}
	if err := complain(func(text string) { request.Warn(ctx, text) }, strict, how); err != nil {
		return nil, false, err
	}
	dropNewer(config.Object, strict)
	force := opts.Force != nil && *opts.Force
	m, err := s.fieldManager(t.served, t.subresource)
	if err != nil {
		return nil, false, err
	}
	merge := func(live api.Object) (api.Object, error) {
		merged, err := m.Apply(typed(t.storage, live), config.DeepCopy(), opts.FieldManager, force)
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); ok {
				return nil, err
			}
			return nil, apierrors.NewBadRequest(err.Error())
		}
		obj, ok := merged.(api.Object)
		if !ok {
			return nil, fmt.Errorf("apply gave a %T", merged)
		}
		wholeSeconds(obj)
		if v := s.builtin.byKind[obj.GetObjectKind().GroupVersionKind()]; v != nil {
			return v.toStorage(obj)
		}
		return t.storage.toStorage(obj)
	}
	r.change = func(old api.Object) (api.Object, error) {
		obj, err := merge(old)
		if err != nil {
			return nil, err
		}
		if obj.GetResourceVersion() == "" {
			obj.SetResourceVersion(old.GetResourceVersion())
		}
		return obj, nil
	}
	if t.subresource == "" {
		r.createMissing = func() (*object, bool, error) {
			if config.GetUID() != "" {
				return nil, false, apierrors.NewConflict(t.gr(), t.name, fmt.Errorf(
					"uid mismatch: the provided object specified uid %s, and no existing object was found", config.GetUID()))
			}
			obj, err := merge(t.New())
			if err != nil {
				return nil, false, err
			}
			if err := t.checkName(obj); err != nil {
				return nil, false, err
			}
			one := *t
			o, err := s.create(ctx, &one, obj, nil)
			return o, true, err
		}
	}
	return s.replace(ctx, r)
}
