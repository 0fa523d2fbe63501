package scheduler

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const imageLocalityName = "ImageLocality"

// Images on a node count from minImage bytes on; maxImage bytes a container are as good as it gets.
const (
	minImage = 23 << 20
	maxImage = 1000 << 20
)

// imageLocality prefers nodes that have the pod's images, large ones above all, as far as many nodes have them: else all
// pods of an image would gather on one node.
type imageLocality struct{}

func (imageLocality) name() string { return imageLocalityName }

type imageScorer struct {
	images     []string
	shares     []float64 // of the nodes that have the image
	containers int64
}

func (imageLocality) preScore(c *cycle, nodes []*nodeInfo) scorer {
	s := imageScorer{}
	spec := &c.pod.pod.Spec
	total := float64(len(c.list()))
	for _, list := range [2][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			s.containers++
			name := imageName(list[i].Image)
			if count := c.imageNodes[name]; count > 0 {
				s.images = append(s.images, name)
				s.shares = append(s.shares, float64(count)/total)
			}
		}
	}
	if len(s.images) == 0 {
		return nil
	}
	return s
}

// imageName is an image's name as nodes report it.
func imageName(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		image += ":latest"
	}
	return image
}

func (s imageScorer) score(n *nodeInfo) int64 {
	var sum int64
	for i, image := range s.images {
		sum += int64(float64(n.images[image]) * s.shares[i])
	}
	most := maxImage * s.containers
	return maxScore * (min(max(sum, minImage), most) - minImage) / (most - minImage)
}

func (imageScorer) normalize([]int64) {}
