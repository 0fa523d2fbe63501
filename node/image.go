package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imagePuller joins pulls of one image and limits how many run at once.
type imagePuller struct {
	slots chan struct{}
	mu    sync.Mutex
	names map[string]*sync.Mutex
}

func (i *imagePuller) init() {
	i.slots = make(chan struct{}, 5)
	i.names = map[string]*sync.Mutex{}
}

func (i *imagePuller) lock(name string) *sync.Mutex {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.names[name] == nil {
		i.names[name] = &sync.Mutex{}
	}
	return i.names[name]
}

// ensureImage has the image of a container present as its policy says, and returns it.
func (n *Node) ensureImage(ctx context.Context, p *pod, api *corev1.Pod, c *corev1.Container, sandbox *cri.PodSandboxConfig) (*cri.Image, error) {
	set := func(reason, message string) error {
		p.mu.Lock()
		p.wait(c.Name, reason, message)
		p.mu.Unlock()
		return fmt.Errorf("%s: %s", reason, message)
	}
	warn := func(reason, message string) {
		if ctx.Err() == nil {
			n.event(api, c.Name, corev1.EventTypeWarning, reason, message)
		}
	}
	name, err := normalizeImage(c.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err)
		warn("InspectFailed", message)
		warn("Failed", "Error: InvalidImageName")
		return nil, set("InvalidImageName", message)
	}
	lock := n.images.lock(name)
	lock.Lock()
	defer lock.Unlock()
	image, err := n.Runtime.ImageStatus(ctx, name)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", c.Image, plainText(err))
		warn("InspectFailed", message)
		warn("Failed", "Error: ImageInspectError")
		return nil, set("ImageInspectError", message)
	}
	present := image != nil && image.Id != ""
	policy := c.ImagePullPolicy
	if present && (policy != corev1.PullAlways) {
		n.event(api, c.Name, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", c.Image))
		return image, nil
	}
	if policy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		warn("ErrImageNeverPull", message)
		warn("Failed", "Error: ErrImageNeverPull")
		return nil, set("ErrImageNeverPull", message)
	}
	key := "image/" + name
	p.mu.Lock()
	var since time.Time
	if b := p.backoff[key]; b != nil {
		since = b.last
	}
	left, _ := p.inBackoff(key, since)
	p.mu.Unlock()
	if left > 0 && !since.IsZero() {
		message := fmt.Sprintf("Back-off pulling image %q", c.Image)
		n.event(api, c.Name, corev1.EventTypeNormal, "BackOff", message)
		warn("Failed", "Error: ImagePullBackOff")
		n.queue.AddAfter(p.uid, left)
		return nil, set("ImagePullBackOff", message)
	}
	n.event(api, c.Name, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	start := time.Now()
	err = n.pull(ctx, api, name, sandbox)
	if err == nil {
		image, err = n.Runtime.ImageStatus(ctx, name)
		if err == nil && (image == nil || image.Id == "") {
			err = fmt.Errorf("image %q is not there after the pull", c.Image)
		}
	}
	if err != nil {
		p.mu.Lock()
		p.next(key, time.Now())
		p.mu.Unlock()
		text := rpcText(err)
		warn("Failed", fmt.Sprintf("Failed to pull image %q: %s", c.Image, text))
		warn("Failed", "Error: ErrImagePull")
		return nil, set("ErrImagePull", text)
	}
	took := time.Since(start).Round(time.Millisecond)
	n.event(api, c.Name, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", c.Image, took, took, image.Size))
	p.mu.Lock()
	delete(p.backoff, key)
	p.mu.Unlock()
	n.wakeStatus()
	return image, nil
}

// pull tries the pod's credentials that fit the image, or none.
func (n *Node) pull(ctx context.Context, api *corev1.Pod, name string, sandbox *cri.PodSandboxConfig) error {
	select {
	case n.images.slots <- struct{}{}:
		defer func() { <-n.images.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	auths := n.credentials(ctx, api, name)
	if len(auths) == 0 {
		auths = []*cri.AuthConfig{nil}
	}
	var err error
	for _, auth := range auths {
		if _, err = n.Runtime.PullImage(ctx, name, auth, sandbox); err == nil {
			return nil
		}
	}
	return err
}

// dockerConfig is the content of image pull secrets.
type dockerConfig struct {
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	Username, Password, Auth, IdentityToken, RegistryToken string
}

// credentials of the pod's pull secrets for an image. A secret that is missing is as good as none.
func (n *Node) credentials(ctx context.Context, api *corev1.Pod, image string) []*cri.AuthConfig {
	var out []*cri.AuthConfig
	for _, ref := range api.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := n.sources.forPod(api.UID).Secret(ctx, api.Namespace, ref.Name)
		if err != nil {
			n.event(api, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name))
			continue
		}
		var config dockerConfig
		switch {
		case len(secret.Data[corev1.DockerConfigJsonKey]) > 0:
			err = json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config)
		case len(secret.Data[corev1.DockerConfigKey]) > 0:
			err = json.Unmarshal(secret.Data[corev1.DockerConfigKey], &config.Auths)
		}
		if err != nil {
			n.Log.Debug("pull secret not read", "pod", api.Namespace+"/"+api.Name, "secret", ref.Name)
			continue
		}
		for registry, auth := range config.Auths {
			if !registryMatches(registry, image) {
				continue
			}
			if auth.Auth != "" && auth.Username == "" {
				if plain, err := base64.StdEncoding.DecodeString(auth.Auth); err == nil {
					auth.Username, auth.Password, _ = strings.Cut(string(plain), ":")
				}
			}
			out = append(out, &cri.AuthConfig{
				Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
			})
		}
	}
	return out
}

// registryMatches reports whether credentials for a registry, with or without scheme and path, are for an image. A label
// of the host may be a star.
func registryMatches(registry, image string) bool {
	registry = strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	registry = strings.TrimSuffix(registry, "/")
	host, path, _ := strings.Cut(registry, "/")
	if path == "v1" || path == "v2" {
		path = ""
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	imageHost, imagePath, _ := strings.Cut(image, "/")
	want, have := strings.Split(host, "."), strings.Split(imageHost, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != "*" && want[i] != have[i] {
			return false
		}
	}
	return strings.HasPrefix(imagePath, path)
}

// normalizeImage gives an image its registry and tag, as users leave them out.
func normalizeImage(image string) (string, error) {
	if image == "" || strings.ContainsAny(image, " \t\n") {
		return "", fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
	}
	name, digest, hasDigest := strings.Cut(image, "@")
	tag := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name, tag = name[:i], name[i+1:]
		if tag == "" {
			return "", fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
		}
	}
	first, rest, found := strings.Cut(name, "/")
	if !found || (!strings.ContainsAny(first, ".:") && first != "localhost") {
		if !found {
			rest = "library/" + name
		} else {
			rest = name
		}
		first = "docker.io"
	}
	if rest != strings.ToLower(rest) {
		return "", fmt.Errorf("couldn't parse image name %q: invalid reference format: repository name must be lowercase", image)
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return "", fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
		}
	}
	name = first + "/" + rest
	switch {
	case hasDigest:
		if tag != "" {
			name += ":" + tag
		}
		return name + "@" + digest, nil
	case tag == "":
		tag = "latest"
	}
	return name + ":" + tag, nil
}
