package apiserver

import (
	"encoding/json"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa/api"
)

func schemaResource(name string) schema.GroupResource { return schema.GroupResource{Resource: name} }

// scalePatch returns the change that a patch of a scale stands for.
func scalePatch(kind types.PatchType, data []byte, how fieldValidation, warn func(string)) (func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error), error) {
	asked := kind
	switch kind {
	case types.ApplyYAMLPatchType:
		plain, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		data, kind = plain, types.MergePatchType
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
	default:
		return nil, unsupportedMedia(string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType))
	}
	v := &served{Resource: &api.Resource{New: func() api.Object { return new(autoscalingv1.Scale) }}, gvk: scaleKind}
	patch, complaints, err := patcher(v, kind, data, how)
	if err != nil {
		return nil, err
	}
	return func(old *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		version := old.ResourceVersion
		original, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		patched, err := patch(original)
		if err != nil {
			return nil, err
		}
		out := &autoscalingv1.Scale{}
		strict, err := decodeJSON(patched, out, how)
		if err != nil {
			return nil, invalidPatch(asked, data, patched, err)
		}
		if err := expectKind(out.GroupVersionKind(), scaleKind); err != nil {
			return nil, err
		}
		if err := complain(warn, slices.Concat(complaints, strict), how); err != nil {
			return nil, err
		}
		if out.ResourceVersion == version {
			out.ResourceVersion = ""
		}
		return out, nil
	}, nil
}
