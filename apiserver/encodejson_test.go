package apiserver

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestJSONIsThatOfTheLibrary compares the server's encoder with encoding/json, for all kinds.
func TestJSONIsThatOfTheLibrary(t *testing.T) {
	s := bareServer(t)
	f := filler{rand.New(rand.NewPCG(5, 6))}
	for _, v := range s.builtin.byResource {
		if v.Virtual {
			continue
		}
		t.Run(v.Key(), func(t *testing.T) {
			for i := range 40 {
				obj := v.New()
				f.fill(reflect.ValueOf(obj).Elem(), i%14)
				at := metav1.Unix(1, 0)
				obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Time: &at, FieldsV1: metav1.NewFieldsV1([]string{`{"f:a":{}}`, `{ "f:<b>":{} }`, `{"f:ü":{}}`}[f.IntN(3)])}, {}})
				want, err := json.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				got, err := v.json.marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) {
					t.Fatalf("(-library +server):\n%s", cmp.Diff(string(want), string(got)))
				}
			}
		})
	}
}

func TestJSONOfOddTypes(t *testing.T) {
	type inner struct{ A, B string }
	type named string
	type odd struct {
		inner
		Plain    string
		Quoted   int `json:",string"`
		Array    [2]int
		Any      any
		Numbers  map[int]string
		Float    float32
		Skipped  string `json:"-"`
		Dash     string `json:"-,"`
		Duration metav1.Duration
		Micro    metav1.MicroTime
		Port     *intstr.IntOrString
		Bytes    []byte
		Named    []named
		Zero     time.Time `json:",omitzero"`
		Amounts  map[string]resource.Quantity
	}
	port := intstr.FromString("http")
	plans := &jsonPlans{}
	for _, x := range []any{
		&odd{},
		&odd{inner: inner{"a", "b"}, Quoted: 3, Any: map[string]any{"x": 1.5}, Numbers: map[int]string{2: "b", 1: "a"}, Float: 1e30, Dash: "d", Port: &port,
			Bytes: []byte{1, 2, 255}, Named: []named{"\xff", "\u2028"}, Amounts: map[string]resource.Quantity{"b": resource.MustParse("1Gi"), "a": {}}},
		&struct{ inner }{inner{"a", "b"}},
		&struct {
			A int
			inner
		}{1, inner{"a", "b"}},
		(*odd)(nil),
		odd{},
		&port,
	} {
		want, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := plans.marshal(x)
		if err != nil || string(got) != string(want) {
			t.Errorf("%T: %s, %v; want %s", x, got, err, want)
		}
	}
	if _, err := plans.marshal(&struct{ C chan int }{}); err == nil {
		t.Error("a channel was encoded")
	}
}

func BenchmarkEncodePod(b *testing.B) {
	at := metav1.Unix(1, 0)
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID, pod.CreationTimestamp = "pod-1", "default", "f5a5b2f4-3b5e-4a0e-8a52-3c4d9a1f2b6c", at
	pod.Labels = map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": "7", "pod-template-hash": "5d4f8b7c9"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{` + strings.Repeat(`"f:field":{".":{}},`, 40) + `"f:last":{}}}`),
	}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "web", Image: "registry.example.com/shop/web:v1.27.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Env:       []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}},
		Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
	}}
	plans := &jsonPlans{}
	for name, marshal := range map[string]func(any) ([]byte, error){"server": plans.marshal, "library": json.Marshal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data, err := marshal(pod)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(data)))
			}
		})
	}
}

// shy has a form of its own only where it has an address.
type shy struct{ A string }

func (s *shy) MarshalJSON() ([]byte, error) { return []byte(`"shy"`), nil }

func TestJSONOfValuesWithoutAddress(t *testing.T) {
	x := &struct {
		InMap  map[string]shy
		InList []shy
		Here   shy
	}{map[string]shy{"a": {"b"}}, []shy{{"c"}}, shy{"d"}}
	want, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (&jsonPlans{}).marshal(x); err != nil || string(got) != string(want) {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
