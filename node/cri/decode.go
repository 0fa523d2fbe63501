package cri

import (
	"fmt"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
)

// decode reads the payload of a containerd event. containerd names its types without the host part that anypb expects,
// so the topic decides the type and the name is not compared.
func decode(envelope *types.Envelope, event proto.Message) error {
	if err := proto.Unmarshal(envelope.GetEvent().GetValue(), event); err != nil {
		return fmt.Errorf("decode event %s: %w", envelope.GetTopic(), err)
	}
	return nil
}
