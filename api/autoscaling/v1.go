package autoscaling

import (
	"proa/api"
)

func v1ToStorage(obj api.Object) (api.Object, error) { return obj, nil }

func v1FromStorage(obj api.Object) (api.Object, error) { return obj, nil }
