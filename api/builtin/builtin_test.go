package builtin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/api"
)

// fill sets every field below v to something, as far as depth goes.
func fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.NewTime(time.Date(2024, 8, 13, 7, 28, 49, 0, time.UTC).Local())
		return
	case *metav1.MicroTime:
		*x = metav1.NewMicroTime(time.Date(2024, 8, 13, 7, 28, 49, 5000, time.UTC).Local())
		return
	case *resource.Quantity:
		*x = resource.MustParse("3")
		_ = x.String()
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(7)
		return
	case *metav1.TypeMeta, *runtime.RawExtension, *metav1.FieldsV1, *metav1.ManagedFieldsEntry:
		return
	}
	if depth == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("bytes"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), reflect.ValueOf("value").Convert(v.Type().Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	}
}

func filled(newObject func() api.Object) api.Object {
	obj := newObject()
	fill(reflect.ValueOf(obj).Elem(), 9)
	return obj
}

func TestScheme(t *testing.T) {
	s := api.NewScheme(Table())
	for r := range Table().All() {
		if !s.Recognizes(r.GroupVersionKind) {
			t.Errorf("%s is not in the scheme", r.GroupVersionKind)
		}
	}
	for _, kind := range []struct{ group, version, kind string }{
		{"autoscaling", "v1", "Scale"}, {"policy", "v1", "Eviction"}, {"authentication.k8s.io", "v1", "TokenRequest"},
		{"apps", "v1", "DeleteOptions"}, {"", "v1", "Status"}, {"batch", "v1", "WatchEvent"}, {"meta.k8s.io", "v1", "Table"},
	} {
		gvk := metav1.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.kind}
		if !s.Recognizes(schema.GroupVersionKind(gvk)) {
			t.Errorf("%s is not in the scheme", gvk)
		}
	}
}

func TestNames(t *testing.T) {
	want := "bindings componentstatuses=cs configmaps=cm endpoints=ep events=ev limitranges=limits namespaces=ns nodes=no " +
		"persistentvolumeclaims=pvc persistentvolumes=pv pods=po podtemplates replicationcontrollers=rc resourcequotas=quota secrets " +
		"serviceaccounts=sa services=svc mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations " +
		"validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations storageversions " +
		"controllerrevisions daemonsets=ds deployments=deploy replicasets=rs statefulsets=sts selfsubjectreviews tokenreviews " +
		"localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews horizontalpodautoscalers=hpa " +
		"cronjobs=cj jobs certificatesigningrequests=csr clustertrustbundles leases endpointslices flowschemas prioritylevelconfigurations " +
		"ingressclasses ingresses=ing ipaddresses=ip networkpolicies=netpol servicecidrs runtimeclasses poddisruptionbudgets=pdb " +
		"clusterrolebindings clusterroles rolebindings roles priorityclasses=pc csidrivers csinodes csistoragecapacities " +
		"storageclasses=sc volumeattachments volumeattributesclasses=vac"
	var got []string
	for r := range Table().All() {
		name := r.Plural
		if len(r.ShortNames) > 0 {
			name += "=" + strings.Join(r.ShortNames, ",")
		}
		got = append(got, name)
		if r.Singular != strings.ToLower(r.Kind) {
			t.Errorf("%s: singular %q of kind %q", r.Key(), r.Singular, r.Kind)
		}
		if typ := reflect.TypeOf(r.New()).Elem().Name(); typ != r.Kind {
			t.Errorf("%s: New returns a %s", r.Key(), typ)
		}
		if list := reflect.TypeOf(r.NewList()).Elem().Name(); list != r.Kind+"List" && !r.Virtual {
			t.Errorf("%s: NewList returns a %s", r.Key(), list)
		}
	}
	if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	scheme := api.NewScheme(Table())
	proto := protobuf.NewSerializer(scheme, scheme)
	for r := range Table().All() {
		t.Run(r.Key(), func(t *testing.T) {
			obj := filled(r.New)
			data, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			back := r.New()
			if err := json.Unmarshal(data, back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(obj, back); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
			var out bytes.Buffer
			if err := proto.Encode(obj, &out); err != nil {
				t.Fatal(err)
			}
			decoded, _, err := proto.Decode(out.Bytes(), nil, r.New())
			if err != nil {
				t.Fatal(err)
			}
			decoded.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
			if diff := cmp.Diff(runtime.Object(obj), decoded); diff != "" {
				t.Errorf("protobuf (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for r := range Table().All() {
		for _, v := range r.Versions {
			t.Run(r.Key()+"/"+v.Name, func(t *testing.T) {
				obj := filled(r.New)
				if r.Kind == "HorizontalPodAutoscaler" {
					t.Skip("a filled autoscaler has metrics of several types in one, which v1 cannot express; package autoscaling tests it")
				}
				other, err := v.FromStorage(obj.DeepCopyObject().(api.Object))
				if err != nil {
					t.Fatal(err)
				}
				if want, got := reflect.TypeOf(v.New()), reflect.TypeOf(other); want != got {
					t.Fatalf("FromStorage returns a %v, want a %v", got, want)
				}
				back, err := v.ToStorage(other)
				if err != nil {
					t.Fatal(err)
				}
				if v.Group != "" {
					return
				}
				if diff := cmp.Diff(obj, back); diff != "" {
					t.Errorf("there and back (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestColumns(t *testing.T) {
	for r := range Table().All() {
		for what, obj := range map[string]api.Object{"empty": r.New(), "filled": filled(r.New)} {
			if r.Cells == nil {
				if len(r.Columns) > 0 {
					t.Errorf("%s has columns but no cells", r.Key())
				}
				continue
			}
			cells := r.Cells(obj, time.Now())
			if len(cells) != len(r.Columns) {
				t.Errorf("%s: %d cells of an %s object in %d columns", r.Key(), len(cells), what, len(r.Columns))
			}
			if _, err := json.Marshal(cells); err != nil {
				t.Errorf("%s: cells of an %s object: %v", r.Key(), what, err)
			}
		}
		for _, c := range r.Columns {
			if c.Description == "" {
				t.Errorf("%s: column %s has no description", r.Key(), c.Name)
			}
		}
	}
}

// Defaulting and validation must survive whatever a client sends.
func TestPure(t *testing.T) {
	for r := range Table().All() {
		for what, obj := range map[string]api.Object{"empty": r.New(), "filled": filled(r.New)} {
			t.Run(r.Key()+"/"+what, func(t *testing.T) {
				if r.Validate != nil {
					r.Validate(obj)
				}
				if r.Default != nil {
					r.Default(obj)
					again := obj.DeepCopyObject().(api.Object)
					r.Default(again)
					if diff := cmp.Diff(obj, again); diff != "" {
						t.Errorf("defaulting twice (-once +twice):\n%s", diff)
					}
				}
				if r.PrepareCreate != nil {
					r.PrepareCreate(obj)
				}
				before := obj.DeepCopyObject()
				if r.Validate != nil {
					r.Validate(obj)
				}
				if r.ValidateUpdate != nil {
					r.ValidateUpdate(obj, obj.DeepCopyObject().(api.Object))
				}
				if r.ValidateStatusUpdate != nil {
					r.ValidateStatusUpdate(obj, obj.DeepCopyObject().(api.Object))
				}
				if r.Warnings != nil {
					r.Warnings(obj, nil)
				}
				for _, name := range r.FieldNames {
					r.FieldValue(obj, name)
				}
				if diff := cmp.Diff(before, runtime.Object(obj)); diff != "" {
					t.Errorf("validation changed the object (-before +after):\n%s", diff)
				}
			})
		}
	}
}
