package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"proa/api"
	"proa/apiserver/request"
)

// maxOperations bounds the operations of a JSON patch.
const maxOperations = 10000

func (x *exchange) patch() error {
	media, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	kind := types.PatchType(media)
	switch kind {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType:
	default:
		err = unsupportedMedia(string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType))
	}
	if err != nil {
		return err
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
	change, err := patcher(t.served, kind, data)
	if err != nil {
		return nil, false, err
	}
	r.manage = s.manage(t)
	r.change = func(old api.Object) (api.Object, error) {
		shown, err := t.fromStorage(old)
		if err != nil {
			return nil, err
		}
		original, err := json.Marshal(typed2(t.served, shown))
		if err != nil {
			return nil, err
		}
		patched, err := change(original)
		if err != nil {
			return nil, err
		}
		obj := t.newObject()
		strict, err := decodeInto(patched, asJSON, obj, t.gvk, how)
		if err != nil {
			if status, ok := err.(*apierrors.StatusError); ok && status.ErrStatus.Code == http.StatusBadRequest {
				return nil, apierrors.NewBadRequest(status.ErrStatus.Message)
			}
			return nil, err
		}
		if err := complain(warn, strict, how); err != nil {
			return nil, err
		}
		out, err := t.toStorage(obj)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if out.GetName() != t.name && out.GetName() != "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", out.GetName(), t.name))
		}
		if out.GetResourceVersion() == "" {
			out.SetResourceVersion(old.GetResourceVersion())
		}
		return out, nil
	}
	return s.replace(ctx, r)
}

// typed2 gives a shallow copy of a kind's object its type meta.
func typed2(v *served, obj api.Object) api.Object {
	return typed(&served{Resource: v.Resource, gvk: v.gvk}, obj)
}

// patcher returns the function that a patch stands for.
func patcher(v *served, kind types.PatchType, data []byte) (func(original []byte) ([]byte, error), error) {
	switch kind {
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(patch) > maxOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(patch)))
		}
		return func(original []byte) ([]byte, error) {
			out, err := patch.Apply(original)
			if err != nil {
				return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", v.gr(), "", err.Error(), 0, false)
			}
			return out, nil
		}, nil
	case types.MergePatchType:
		var probe map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &probe); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		return func(original []byte) ([]byte, error) {
			out, err := jsonpatch.MergePatch(original, data)
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			return out, nil
		}, nil
	}
	var patch map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	schema := v.newObject()
	return func(original []byte) ([]byte, error) {
		var doc map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(original, &doc); err != nil {
			return nil, err
		}
		out, err := strategicpatch.StrategicMergeMapPatch(doc, runtime.DeepCopyJSON(patch), schema)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return json.Marshal(out)
	}, nil
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
	if err := expectKind(config.GroupVersionKind(), t.gvk); err != nil {
		return nil, false, err
	}
	if config.GetName() != "" && config.GetName() != t.name {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", config.GetName(), t.name))
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
			obj.SetName(t.name)
			one := *t
			o, err := s.create(ctx, &one, obj, nil)
			return o, true, err
		}
	}
	return s.replace(ctx, r)
}
