package volumes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/node/volumes"
)

// world is an API that issues tokens, and a manager below a folder of the test's own.
type world struct {
	*clientfake.Client
	manager *volumes.Manager
	root    string

	issued int
	refuse error
	due    time.Duration
}

func newWorld(t *testing.T, objects ...api.Object) *world {
	t.Helper()
	w := &world{Client: clientfake.New(builtin.Table(), objects...), root: t.TempDir()}
	w.restart()
	return w
}

// restart forgets what is not on disk.
func (w *world) restart() {
	w.manager = volumes.New(volumes.Config{
		RootDir: w.root, Client: w, Sources: w,
		Fields: func(pod *corev1.Pod, file *corev1.DownwardAPIVolumeFile) (string, error) {
			return pod.Labels[file.FieldRef.FieldPath], nil
		},
		Changed: func(_ types.UID, after time.Duration) { w.due = after },
	})
}

func (w *world) ConfigMap(ctx context.Context, _ types.UID, namespace, name string) (*corev1.ConfigMap, error) {
	return client.For[*corev1.ConfigMap](w.Client).Get(ctx, namespace, name)
}

func (w *world) Secret(ctx context.Context, _ types.UID, namespace, name string) (*corev1.Secret, error) {
	return client.For[*corev1.Secret](w.Client).Get(ctx, namespace, name)
}

func (w *world) Post(_ context.Context, _ *api.Resource, _, _, subresource string, body runtime.Object) (runtime.Object, error) {
	request, ok := body.(*authenticationv1.TokenRequest)
	if !ok || subresource != "token" {
		return nil, fmt.Errorf("unexpected post of %T to %s", body, subresource)
	}
	if w.refuse != nil {
		return nil, w.refuse
	}
	w.issued++
	expires := time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)
	claims, err := json.Marshal(map[string]any{
		"aud": request.Spec.Audiences, "iat": time.Now().Unix(), "exp": expires.Unix(), "jti": w.issued,
		"kubernetes.io": map[string]any{"pod": map[string]any{"uid": request.Spec.BoundObjectRef.UID}},
	})
	if err != nil {
		return nil, err
	}
	answer := request.DeepCopy()
	answer.Status = authenticationv1.TokenRequestStatus{
		Token: "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln", ExpirationTimestamp: metav1.NewTime(expires),
	}
	return answer, nil
}

func (w *world) setUp(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := w.manager.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func (w *world) path(t *testing.T, pod *corev1.Pod, volume string) string {
	t.Helper()
	source, ok := w.manager.Path(pod.UID, volume)
	if !ok {
		t.Fatalf("volume %s is not there", volume)
	}
	return source.Path
}

// newPod mounts each of its volumes.
func newPod(list ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "u1"}}
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.Volumes = list
	c := corev1.Container{Name: "c"}
	for _, v := range list {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
}

func fromConfigMap(name string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items,
	}}}
}

// tree lists what users see in a volume: paths, modes and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			out[e.Name()+strings.TrimPrefix(path, real)] = fmt.Sprintf("%o %s", info.Mode().Perm(), data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func check(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestConfigMap(t *testing.T) {
	w := newWorld(t, configMap("cm", map[string]string{"a": "1", "b": "2"}))
	mode, pod := int32(0o400), newPod(fromConfigMap("cm"))
	defer w.manager.TearDown(t.Context(), pod.UID)
	w.setUp(t, pod)
	dir := w.path(t, pod, "v")
	if want := filepath.Join(w.root, "pods/u1/volumes/kubernetes.io~configmap/v"); dir != want {
		t.Errorf("the volume is at %s, want %s", dir, want)
	}
	check(t, "all keys", tree(t, dir), map[string]string{"a": "644 1", "b": "644 2"})

	before, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.setUp(t, pod)
	if after, _ := os.Readlink(filepath.Join(dir, "..data")); after != before {
		t.Error("the files were written again although nothing had changed")
	}

	w.Put(configMap("cm", map[string]string{"b": "3", "c": "4"}))
	w.setUp(t, pod)
	check(t, "after a change", tree(t, dir), map[string]string{"b": "644 3", "c": "644 4"})
	if _, err := os.Stat(filepath.Join(dir, before)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the former version is left: %v", err)
	}

	items := newPod(fromConfigMap("cm", corev1.KeyToPath{Key: "b", Path: "x/y", Mode: &mode}, corev1.KeyToPath{Key: "c", Path: "x/z"}))
	items.UID = "u2"
	defer w.manager.TearDown(t.Context(), items.UID)
	w.setUp(t, items)
	check(t, "items", tree(t, w.path(t, items, "v")), map[string]string{"x/y": "400 3", "x/z": "644 4"})
}

func TestInterruptedWrite(t *testing.T) {
	w := newWorld(t, configMap("cm", map[string]string{"a": "1"}))
	pod := newPod(fromConfigMap("cm"))
	w.setUp(t, pod)
	dir := w.path(t, pod, "v")
	// As a crash between the steps of a change leaves it.
	if err := errors.Join(os.Remove(filepath.Join(dir, "a")), os.Mkdir(filepath.Join(dir, "..half"), 0o755), os.Symlink("..half", filepath.Join(dir, "..data_tmp"))); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.setUp(t, pod)
	check(t, "same content", tree(t, dir), map[string]string{"a": "644 1"})
	w.Put(configMap("cm", map[string]string{"a": "2"}))
	w.setUp(t, pod)
	check(t, "new content", tree(t, dir), map[string]string{"a": "644 2"})
	if _, err := os.Stat(filepath.Join(dir, "..half")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half made version is left: %v", err)
	}
}

func TestOptional(t *testing.T) {
	yes := true
	v := fromConfigMap("cm", corev1.KeyToPath{Key: "a", Path: "a"}, corev1.KeyToPath{Key: "b", Path: "b"})
	v.ConfigMap.Optional = &yes
	w, pod := newWorld(t), newPod(v)
	w.setUp(t, pod)
	check(t, "nothing", tree(t, w.path(t, pod, "v")), map[string]string{})
	cm := w.Put(configMap("cm", map[string]string{"a": "1"}))
	w.setUp(t, pod)
	check(t, "one key", tree(t, w.path(t, pod, "v")), map[string]string{"a": "644 1"})
	w.Remove(cm)
	w.setUp(t, pod)
	check(t, "nothing again", tree(t, w.path(t, pod, "v")), map[string]string{})
}

func TestErrors(t *testing.T) {
	w := newWorld(t, configMap("cm", map[string]string{"a": "1"}), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
	volume := func(source corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: source} }
	tests := []struct {
		name   string
		volume corev1.Volume
		want   string
	}{
		{"missing key of a ConfigMap", fromConfigMap("cm", corev1.KeyToPath{Key: "x", Path: "x"}),
			`MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: x`},
		{"missing key of a Secret", volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Items: []corev1.KeyToPath{{Key: "x", Path: "x"}}}}),
			`MountVolume.SetUp failed for volume "v" : references non-existent secret key: x`},
		{"image", volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x"}}),
			`MountVolume.SetUp failed for volume "v" : image volumes are not supported by this runtime`},
		{"unknown", volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}),
			`Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := w.manager.Setup(t.Context(), newPod(test.volume))
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}

	bad, good := fromConfigMap("missing"), fromConfigMap("cm")
	good.Name = "good"
	pod := newPod(bad, good)
	pod.UID = "both"
	if err := w.manager.Setup(t.Context(), pod); err == nil || !strings.Contains(err.Error(), `for volume "v" : `) || strings.Contains(err.Error(), `"good"`) {
		t.Errorf("got %v", err)
	}
	check(t, "volume beside a broken one", tree(t, w.path(t, pod, "good")), map[string]string{"a": "644 1"})

	pod = newPod(bad, good)
	pod.UID = "unused"
	pod.Spec.Containers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts[1:]
	w.setUp(t, pod)
}

func TestDownwardAPI(t *testing.T) {
	w := newWorld(t)
	pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "dir/app", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "app"}}},
	}}})
	pod.Labels = map[string]string{"app": "one"}
	w.setUp(t, pod)
	pod = pod.DeepCopy()
	pod.Labels["app"] = "two"
	w.setUp(t, pod)
	check(t, "files", tree(t, w.path(t, pod, "v")), map[string]string{"dir/app": "644 two"})
}

func withToken() corev1.Volume {
	seconds := int64(3600)
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds, Audience: "x"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
	}}}}
}

// TestTokenRenewal keeps a token until 80 % of its time have passed, over restarts of the agent and while the API server
// does not answer.
func TestTokenRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, configMap("cm", map[string]string{"ca.crt": "x"}))
		pod := newPod(withToken())
		defer w.manager.TearDown(t.Context(), pod.UID)
		expect := func(what string, issued int) {
			t.Helper()
			w.setUp(t, pod)
			if w.issued != issued {
				t.Errorf("%s: %d tokens, want %d", what, w.issued, issued)
			}
		}
		expect("at first", 1)
		if w.due < 47*time.Minute || w.due > 49*time.Minute {
			t.Errorf("renewal is due after %v, want about 48m", w.due)
		}
		time.Sleep(30 * time.Minute)
		expect("at half the time", 1)
		w.restart()
		expect("after a restart", 1)
		if w.due < 17*time.Minute || w.due > 19*time.Minute {
			t.Errorf("after a restart renewal is due after %v, want about 18m", w.due)
		}
		w.refuse = errors.New("no answer")
		time.Sleep(w.due)
		expect("without an answer", 1)
		w.refuse = nil
		time.Sleep(w.due)
		expect("at 80 %", 2)
		w.refuse = errors.New("no answer")
		time.Sleep(2 * time.Hour)
		err := w.manager.Setup(t.Context(), pod)
		if want := `MountVolume.SetUp failed for volume "v" : failed to fetch token: no answer`; err == nil || err.Error() != want {
			t.Errorf("expired token: got %v, want %s", err, want)
		}
	})
}

func TestOtherPodsToken(t *testing.T) {
	w := newWorld(t, configMap("cm", nil))
	pod := newPod(withToken())
	w.setUp(t, pod)
	defer w.manager.TearDown(t.Context(), pod.UID)
	data, err := os.ReadFile(filepath.Join(w.path(t, pod, "v"), "token"))
	if err != nil {
		t.Fatal(err)
	}
	other := newPod(withToken())
	other.UID = "u2"
	w.setUp(t, other)
	defer w.manager.TearDown(t.Context(), other.UID)
	if err := os.WriteFile(filepath.Join(w.path(t, other, "v"), "token"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.setUp(t, other)
	if w.issued != 3 {
		t.Errorf("%d tokens were issued, want 3: one is another pod's", w.issued)
	}
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	file, folder, socket := filepath.Join(dir, "file"), filepath.Join(dir, "folder"), filepath.Join(dir, "socket")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	missing := filepath.Join(dir, "missing")
	tests := []struct {
		kind corev1.HostPathType
		path string
		want string // of the error
	}{
		{corev1.HostPathUnset, file, ""},
		{corev1.HostPathDirectory, folder, ""},
		{corev1.HostPathDirectory, file, "file is not a directory"},
		{corev1.HostPathDirectory, missing, "missing is not a directory"},
		{corev1.HostPathDirectoryOrCreate, missing + "1/deep", ""},
		{corev1.HostPathDirectoryOrCreate, file, "file is not a directory"},
		{corev1.HostPathFile, file, ""},
		{corev1.HostPathFile, folder, "folder is not a file"},
		{corev1.HostPathFileOrCreate, missing + "2", ""},
		{corev1.HostPathFileOrCreate, folder, "folder is not a file"},
		{corev1.HostPathSocket, socket, ""},
		{corev1.HostPathSocket, file, "file is not a socket file"},
		{corev1.HostPathCharDev, "/dev/null", ""},
		{corev1.HostPathCharDev, file, "file is not a character device"},
		{corev1.HostPathBlockDev, "/dev/null", "/dev/null is not a block device"},
	}
	w := newWorld(t)
	for _, test := range tests {
		t.Run(string(test.kind)+" "+filepath.Base(test.path), func(t *testing.T) {
			pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: test.path, Type: &test.kind}}})
			err := w.manager.Setup(t.Context(), pod)
			switch {
			case test.want != "":
				if err == nil || !strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "v" : hostPath type check failed: `) || !strings.HasSuffix(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
			case err != nil:
				t.Error(err)
			case w.path(t, pod, "v") != test.path:
				t.Errorf("the volume is at %s", w.path(t, pod, "v"))
			default:
				if _, err := os.Stat(test.path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)}}
		c.Spec.VolumeName = volume
		c.Status.Phase = corev1.ClaimPending
		if volume != "" {
			c.Status.Phase = corev1.ClaimBound
		}
		return c
	}
	volume := func(name, claim string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		v.Spec.PersistentVolumeSource = source
		v.Spec.ClaimRef = &corev1.ObjectReference{UID: types.UID("claim-" + claim)}
		return v
	}
	host := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}
	local := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}
	yes := true
	owned := claim("pod-v", "pv-e")
	owned.OwnerReferences = []metav1.OwnerReference{{UID: "u1", Controller: &yes}}
	stranger := claim("other-v", "pv-e")
	w := newWorld(t,
		claim("host", "pv-host"), volume("pv-host", "host", host),
		claim("local", "pv-local"), volume("pv-local", "local", local),
		claim("gone", "pv-gone"), volume("pv-gone", "gone", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir + "/gone"}}),
		claim("pending", ""), claim("stolen", "pv-host"),
		claim("nfs", "pv-nfs"), volume("pv-nfs", "nfs", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}),
		owned, stranger, volume("pv-e", "pod-v", host),
	)
	named := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: name == "local"}}
	}
	ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	tests := []struct {
		name, pod string
		source    corev1.VolumeSource
		readOnly  bool
		want      string // of the error
	}{
		{name: "host path", source: named("host")},
		{name: "local, read only", source: named("local"), readOnly: true},
		{name: "ephemeral", source: ephemeral},
		{name: "ephemeral of another", pod: "other", source: ephemeral, want: "PVC ns/other-v was not created for pod ns/other (pod is not owner)"},
		{name: "missing path", source: named("gone"), want: fmt.Sprintf(`MountVolume.SetUp failed for volume "v" : path "%s/gone" does not exist`, dir)},
		{name: "missing claim", source: named("missing"), want: `error processing PVC ns/missing: failed to fetch PVC from API server: persistentvolumeclaims "missing" not found`},
		{name: "pending", source: named("pending"), want: "error processing PVC ns/pending: PVC is not bound"},
		{name: "another claim's", source: named("stolen"), want: "does not point to claim.UID claim-stolen"},
		{name: "nfs", source: named("nfs"), want: `failed to get Plugin from volumeSpec for volume "pv-nfs" err=no volume plugin matched`},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := newPod(corev1.Volume{Name: "v", VolumeSource: test.source})
			if test.pod != "" {
				pod.Name = test.pod
			}
			if i > 2 {
				pod.UID = types.UID(test.name)
			}
			err := w.manager.Setup(t.Context(), pod)
			if test.want != "" {
				if err == nil || !strings.HasSuffix(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if source, _ := w.manager.Path(pod.UID, "v"); source != (volumes.Source{Path: dir, ReadOnly: test.readOnly}) {
				t.Errorf("got %+v", source)
			}
			if err := w.manager.TearDown(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTearDown(t *testing.T) {
	w := newWorld(t, configMap("cm", map[string]string{"a": "1"}))
	pod := newPod(fromConfigMap("cm"))
	w.setUp(t, pod)
	if diff := cmp.Diff([]types.UID{"u1"}, w.manager.Known()); diff != "" {
		t.Errorf("known pods (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := w.manager.TearDown(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := w.manager.Path(pod.UID, "v"); ok {
		t.Error("the volume is still known")
	}
	if _, err := os.Stat(filepath.Join(w.root, "pods/u1/volumes")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volumes are left: %v", err)
	}
}
