package core

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	podDeletionCost = "controller.kubernetes.io/pod-deletion-cost"
	mirrorPod       = "kubernetes.io/config.mirror"
	appArmorPrefix  = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	localhostPrefix = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

func (p *problems) annotations(annotations map[string]string, path *field.Path) {
	p.all(validation.ValidateAnnotations(annotations, path))
}

// podAnnotations checks those annotations of pods and templates that mean something to the system.
func (p *problems) podAnnotations(meta *metav1.ObjectMeta, spec *corev1.PodSpec, path *field.Path) {
	if _, ok := meta.Annotations[mirrorPod]; ok && spec.NodeName == "" {
		p.required(path.Key(mirrorPod), "must set spec.nodeName if mirror pod annotation is set")
	}
	if v, ok := meta.Annotations[podDeletionCost]; ok {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != v {
			p.invalid(path.Key(podDeletionCost), v, "must be a 32bit integer")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Annotations)) {
		if strings.HasPrefix(key, appArmorPrefix) {
			p.appArmorAnnotation(key, meta.Annotations[key], spec, path.Key(key))
		}
	}
}

func (p *problems) appArmorAnnotation(key, value string, spec *corev1.PodSpec, path *field.Path) {
	name := strings.TrimPrefix(key, appArmorPrefix)
	found := false
	eachContainer(spec, path, func(c *corev1.Container, _ *field.Path) { found = found || c.Name == name })
	if !found {
		p.invalid(path, name, "container not found")
	}
	switch {
	case value == "", value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case !strings.HasPrefix(value, localhostPrefix):
		p.invalid(path, value, fmt.Sprintf("invalid AppArmor profile name: %q", value))
	}
}

// appArmorAgreement checks that annotations and fields of the same container name the same profile.
func (p *problems) appArmorAgreement(meta *metav1.ObjectMeta, spec *corev1.PodSpec, path *field.Path) {
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return
	}
	eachContainer(spec, path, func(c *corev1.Container, path *field.Path) {
		value, ok := meta.Annotations[appArmorPrefix+c.Name]
		if !ok || value == "" {
			return
		}
		at := path.Child("securityContext", "appArmorProfile")
		profile := effectiveAppArmor(spec, c)
		if profile == nil {
			return
		}
		want := profileOfAnnotation(value)
		switch {
		case want == nil:
		case want.Type != profile.Type:
			p.forbidden(at.Child("type"), "apparmor type in annotation and field must match")
		case want.Type == corev1.AppArmorProfileTypeLocalhost && profile.LocalhostProfile != nil && *profile.LocalhostProfile != *want.LocalhostProfile:
			p.forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match")
		}
	})
}

func effectiveAppArmor(spec *corev1.PodSpec, c *corev1.Container) *corev1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if spec.SecurityContext != nil {
		return spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// profileOfAnnotation is the field form of an annotation's value, nil when it is malformed.
func profileOfAnnotation(value string) *corev1.AppArmorProfile {
	switch name, local := strings.CutPrefix(value, localhostPrefix); {
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case local && name != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// annotationOfProfile is the reverse of profileOfAnnotation; empty when there is none.
func annotationOfProfile(profile *corev1.AppArmorProfile) string {
	if profile == nil {
		return ""
	}
	switch profile.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile != nil {
			return localhostPrefix + *profile.LocalhostProfile
		}
	}
	return ""
}

// syncAppArmor brings annotations and fields of a new pod into step: node agents of all ages then agree.
func syncAppArmor(pod *corev1.Pod) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	var ofPod *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		ofPod = pod.Spec.SecurityContext.AppArmorProfile
	}
	eachContainer(&pod.Spec, nil, func(c *corev1.Container, _ *field.Path) {
		key := appArmorPrefix + c.Name
		value, annotated := pod.Annotations[key]
		own := c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
		switch {
		case annotated && !own:
			profile := profileOfAnnotation(value)
			if profile == nil || ofPod != nil && annotationOfProfile(ofPod) == value {
				return
			}
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		case !annotated:
			if v := annotationOfProfile(effectiveAppArmor(&pod.Spec, c)); v != "" {
				if pod.Annotations == nil {
					pod.Annotations = map[string]string{}
				}
				pod.Annotations[key] = v
			}
		}
	})
}
