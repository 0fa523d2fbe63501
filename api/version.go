package api

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Twin is a served version whose objects have the same JSON form as the storage version's, as most beta versions have:
// it is translated by encoding in one version and decoding in the other. The type meta of a translated object is empty.
func Twin(name string, storage, newObject func() Object, newList func() runtime.Object) Version {
	return Version{
		Name:        name,
		New:         newObject,
		NewList:     newList,
		ToStorage:   func(obj Object) (Object, error) { return recode(obj, storage()) },
		FromStorage: func(obj Object) (Object, error) { return recode(obj, newObject()) },
	}
}

func recode(from, to Object) (Object, error) {
	data, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", from, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return nil, fmt.Errorf("decode %T: %w", to, err)
	}
	to.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return to, nil
}
