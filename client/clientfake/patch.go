package clientfake

import (
	"context"
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"proa/api"
)

// Patch implements client.Interface for JSON, merge and strategic merge patches.
func (c *Client) Patch(ctx context.Context, r *api.Resource, namespace, name, subresource string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (api.Object, error) {
	if err := c.called(ctx, Call{"patch", r, subresource, namespace, name, nil}); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.get(r, namespace, name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, errors.NewInternalError(err)
	}
	after, err := patched(kind, before, data, r.New())
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	obj := r.New()
	if err := json.Unmarshal(after, obj); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	return c.update(r, subresource, obj)
}

func patched(kind types.PatchType, before, data []byte, schema any) ([]byte, error) {
	switch kind {
	case types.StrategicMergePatchType:
		return strategicpatch.StrategicMergePatch(before, data, schema)
	case types.MergePatchType:
		return jsonpatch.MergePatch(before, data)
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, err
		}
		return patch.Apply(before)
	}
	return nil, errors.NewGenericServerResponse(415, "patch", metav1.SchemeGroupVersion.WithResource("").GroupResource(), "", "unsupported patch type "+string(kind), 0, false)
}
