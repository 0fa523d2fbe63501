package core

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *problems) podSecurity(spec *corev1.PodSpec, path *field.Path) {
	sc := spec.SecurityContext
	if spec.HostUsers != nil && !*spec.HostUsers {
		for _, f := range []struct {
			name string
			set  bool
		}{{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}} {
			if f.set {
				p.forbidden(path.Child(f.name), "when `hostUsers` is false")
			}
		}
	}
	at := path.Child("securityContext")
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		p.invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	if sc != nil {
		if sc.FSGroup != nil {
			p.messages(at.Child("fsGroup"), *sc.FSGroup, utilvalidation.IsValidGroupID(*sc.FSGroup))
		}
		p.ids(sc.RunAsUser, sc.RunAsGroup, at)
		for i, gid := range sc.SupplementalGroups {
			p.messages(at.Child("supplementalGroups").Index(i), gid, utilvalidation.IsValidGroupID(gid))
		}
		optional(p, at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
		optional(p, at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy,
			corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)
		p.sysctls(sc.Sysctls, spec, at.Child("sysctls"))
		p.seccomp(sc.SeccompProfile, at.Child("seccompProfile"))
		p.appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))
		p.windowsOptions(sc.WindowsOptions, at.Child("windowsOptions"))
	}
	p.hostProcess(spec, path)
}

func (p *problems) ids(user, group *int64, path *field.Path) {
	if user != nil {
		p.messages(path.Child("runAsUser"), *user, utilvalidation.IsValidUserID(*user))
	}
	if group != nil {
		p.messages(path.Child("runAsGroup"), *group, utilvalidation.IsValidGroupID(*group))
	}
}

func (p *problems) security(c *containerContext, sc *corev1.SecurityContext, path *field.Path) {
	if sc == nil {
		return
	}
	p.ids(sc.RunAsUser, sc.RunAsGroup, path)
	if sc.ProcMount != nil {
		optional(p, path.Child("procMount"), sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *sc.ProcMount == corev1.UnmaskedProcMount && !c.ownUsers() {
			p.invalid(path.Child("procMount"), *sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	p.seccomp(sc.SeccompProfile, path.Child("seccompProfile"))
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			p.invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			p.invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	p.windowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))
	p.appArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))
}

func (p *problems) seccomp(s *corev1.SeccompProfile, path *field.Path) {
	if s == nil {
		return
	}
	if s.Type == "" {
		p.required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		oneOf(p, path.Child("type"), s.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	switch {
	case s.Type == corev1.SeccompProfileTypeLocalhost && s.LocalhostProfile == nil:
		p.required(at, "must be set when seccomp type is Localhost")
	case s.Type == corev1.SeccompProfileTypeLocalhost:
		p.descending(at, *s.LocalhostProfile)
	case s.LocalhostProfile != nil:
		p.invalid(at, *s.LocalhostProfile, "can only be set when seccomp type is Localhost")
	}
}

func (p *problems) appArmor(a *corev1.AppArmorProfile, path *field.Path) {
	// The kernel holds profile names in a page, less the terminating zero.
	const longest = 4095
	if a == nil {
		return
	}
	at := path.Child("localhostProfile")
	switch a.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if a.LocalhostProfile == nil {
			p.required(at, "must be set when AppArmor type is Localhost")
			return
		}
		name := strings.TrimSpace(*a.LocalhostProfile)
		if name != *a.LocalhostProfile {
			p.invalid(at, *a.LocalhostProfile, "must not be padded with whitespace")
		} else if name == "" {
			p.required(at, "must be set when AppArmor type is Localhost")
		}
		if len(*a.LocalhostProfile) > longest {
			p.list = append(p.list, field.TooLong(at, *a.LocalhostProfile, longest))
		}
		return
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
	case "":
		p.required(path.Child("type"), "type is required when appArmorProfile is set")
	default:
		oneOf(p, path.Child("type"), a.Type,
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
	if a.LocalhostProfile != nil {
		p.invalid(at, *a.LocalhostProfile, "can only be set when AppArmor type is Localhost")
	}
}

const (
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlPattern = "(" + sysctlSegment + "[\\./])*" + sysctlSegment
)

// IsSysctlName says whether name is the name of a kernel parameter.
func IsSysctlName(name string) bool {
	ok, err := regexp.MatchString("^"+sysctlPattern+"$", name)
	return err == nil && ok && len(name) <= 253
}

func (p *problems) sysctls(sysctls []corev1.Sysctl, spec *corev1.PodSpec, path *field.Path) {
	seen := map[string]bool{}
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		if s.Name == "" {
			p.required(at, "")
			continue
		}
		if !IsSysctlName(s.Name) {
			p.invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex ^%s$", 253, sysctlPattern))
		}
		if seen[s.Name] {
			p.duplicate(at, s.Name)
		}
		seen[s.Name] = true
		switch name := dotted(s.Name); {
		case spec.HostNetwork && strings.HasPrefix(name, "net."):
			p.invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		case spec.HostIPC && (name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") ||
			strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")):
			p.invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// dotted is the name of a sysctl with dots as separators. Written with slashes, dots are part of a segment.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

func (p *problems) windowsOptions(w *corev1.WindowsSecurityContextOptions, path *field.Path) {
	if w == nil {
		return
	}
	if w.GMSACredentialSpecName != nil {
		p.messages(path.Child("gmsaCredentialSpecName"), *w.GMSACredentialSpecName,
			utilvalidation.IsDNS1123Subdomain(*w.GMSACredentialSpecName))
	}
	if w.GMSACredentialSpec != nil {
		at := path.Child("gmsaCredentialSpec")
		if len(*w.GMSACredentialSpec) == 0 {
			p.invalid(at, *w.GMSACredentialSpec, "gmsaCredentialSpec cannot be an empty string")
		} else if len(*w.GMSACredentialSpec) > 64*1024 {
			p.invalid(at, *w.GMSACredentialSpec, "gmsaCredentialSpec size must be under 64 KiB")
		}
	}
	if w.RunAsUserName != nil {
		p.windowsUser(*w.RunAsUserName, path.Child("runAsUserName"))
	}
}

func (p *problems) windowsUser(name string, path *field.Path) {
	switch {
	case name == "":
		p.invalid(path, name, "runAsUserName cannot be an empty string")
		return
	case strings.ContainsFunc(name, unicode.IsControl):
		p.invalid(path, name, "runAsUserName cannot contain control characters")
		return
	}
	parts := strings.Split(name, `\`)
	if len(parts) > 2 {
		p.invalid(path, name, "runAsUserName cannot contain more than one backslash")
		return
	}
	user := parts[len(parts)-1]
	if len(parts) == 2 {
		domain := parts[0]
		switch {
		case domain == "":
			p.invalid(path, name, `runAsUserName's Domain doesn't match the NetBIOS nor the DNS format`)
		case utf8.RuneCountInString(domain) >= 256:
			p.invalid(path, name, "runAsUserName's Domain length must be under 256 characters")
		case strings.ContainsAny(domain, `/:*?"<>|`) || strings.HasPrefix(domain, "."):
			p.invalid(path, name, `runAsUserName's Domain doesn't match the NetBIOS nor the DNS format`)
		}
	}
	switch {
	case user == "":
		p.invalid(path, name, "runAsUserName's User cannot be empty")
	case utf8.RuneCountInString(user) > 104:
		p.invalid(path, name, "runAsUserName's User length must not be longer than 104 characters")
	case strings.Trim(user, " .") == "":
		p.invalid(path, name, "runAsUserName's User cannot contain only periods or spaces")
	case strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`):
		p.invalid(path, name, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
}

// hostProcess checks that a pod runs either all of its containers as processes of a Windows host or none.
func (p *problems) hostProcess(spec *corev1.PodSpec, path *field.Path) {
	var pod *bool
	if sc := spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		pod = sc.WindowsOptions.HostProcess
	}
	yes, no := 0, 0
	count := func(containers []corev1.Container, path *field.Path) {
		for i, c := range containers {
			own := pod
			if sc := c.SecurityContext; sc != nil && sc.WindowsOptions != nil && sc.WindowsOptions.HostProcess != nil {
				own = sc.WindowsOptions.HostProcess
				if pod != nil && *pod != *own {
					p.invalid(path.Index(i).Child("securityContext", "windowsOptions", "hostProcess"), *own,
						fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod))
				}
			}
			if own != nil && *own {
				yes++
			} else {
				no++
			}
		}
	}
	count(spec.Containers, path.Child("containers"))
	count(spec.InitContainers, path.Child("initContainers"))
	if yes > 0 && no > 0 {
		p.invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if yes > 0 && !spec.HostNetwork {
		p.invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}
