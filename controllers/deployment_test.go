package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa/client"
)

func deployment(n int32, image string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Selector: selectApp("web"), Template: podTemplate("web", image)},
	}
}

// sets returns the ReplicaSets by image.
func (c *cluster) sets() map[string]*appsv1.ReplicaSet {
	c.t.Helper()
	list, err := client.For[*appsv1.ReplicaSet](c).List(context.Background(), "ns", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]*appsv1.ReplicaSet{}
	for _, rs := range list {
		out[rs.Spec.Template.Spec.Containers[0].Image] = rs
	}
	return out
}

// sizes is "image:replicas ..." of the ReplicaSets that want pods.
func (c *cluster) sizes() string {
	var out []string
	for image, rs := range c.sets() {
		if n := wanted(rs); n > 0 {
			out = append(out, fmt.Sprintf("%s:%d", image, n))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func startDeployments(t *testing.T) *cluster {
	return startCluster(t, "deployment-controller", "replicaset-controller")
}

func setImage(c *cluster, image string) {
	edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

func conditionText(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) string {
	if cond := deploymentCondition(&d.Status, kind); cond != nil {
		return fmt.Sprintf("%s %s %s", cond.Status, cond.Reason, cond.Message)
	}
	return ""
}

func TestDeploymentRollsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		create(c, deployment(3, "a"))
		rs := c.sets()["a"]
		if rs == nil {
			t.Fatal("no ReplicaSet")
		}
		hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if hash == "" || rs.Name != "web-"+hash || rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash ||
			rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash {
			t.Errorf("ReplicaSet %s has hash %q, selector %v and template labels %v", rs.Name, hash, rs.Spec.Selector, rs.Spec.Template.Labels)
		}
		for k, want := range map[string]string{revisionAnnotation: "1", desiredAnnotation: "3", maxReplicasAnnotation: "4"} {
			if got := rs.Annotations[k]; got != want {
				t.Errorf("annotation %s is %q, want %q", k, got, want)
			}
		}
		c.wantEvent("Normal ScalingReplicaSet Scaled up replica set " + rs.Name + " to 3")
		d := read[*appsv1.Deployment](c, "web")
		if s := d.Status; s.Replicas != 3 || s.UpdatedReplicas != 3 || s.AvailableReplicas != 3 || s.UnavailableReplicas != 0 || s.ObservedGeneration != 1 {
			t.Errorf("status %+v", s)
		}
		if got, want := conditionText(d, appsv1.DeploymentAvailable), "True MinimumReplicasAvailable Deployment has minimum availability."; got != want {
			t.Errorf("Available is %q, want %q", got, want)
		}
		if got, want := conditionText(d, appsv1.DeploymentProgressing), fmt.Sprintf("True NewReplicaSetAvailable ReplicaSet %q has successfully progressed.", rs.Name); got != want {
			t.Errorf("Progressing is %q, want %q", got, want)
		}

		setImage(c, "b")
		if got := c.sizes(); got != "b:3" {
			t.Errorf("after the update %s, want b:3", got)
		}
		down := "Normal ScalingReplicaSet Scaled down replica set " + rs.Name + " to 0 from "
		if !slices.ContainsFunc(c.events(), func(e string) bool { return strings.HasPrefix(e, down) }) {
			t.Errorf("no event %q...", down)
		}
		if d := read[*appsv1.Deployment](c, "web"); d.Annotations[revisionAnnotation] != "2" {
			t.Errorf("revision is %q, want 2", d.Annotations[revisionAnnotation])
		}

		setImage(c, "a") // as kubectl rollout undo does
		if got := c.sizes(); got != "a:3" {
			t.Errorf("after the undo %s, want a:3", got)
		}
		rs = c.sets()["a"]
		if rs.Annotations[revisionAnnotation] != "3" || rs.Annotations[revisionHistoryAnnotation] != "1" {
			t.Errorf("after the undo revision %q and history %q, want 3 and 1", rs.Annotations[revisionAnnotation], rs.Annotations[revisionHistoryAnnotation])
		}
	})
}

// The bounds of a rolling update hold at every moment.
func TestDeploymentKeepsBounds(t *testing.T) {
	for _, test := range []struct {
		name               string
		surge, unavailable intstr.IntOrString
		least, most        int
	}{
		{"surge only", intstr.FromInt32(1), intstr.FromInt32(0), 10, 11},
		{"unavailable only", intstr.FromInt32(0), intstr.FromInt32(2), 8, 10},
		{"percent", intstr.FromString("25%"), intstr.FromString("25%"), 8, 13},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startDeployments(t)
				d := deployment(10, "a")
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &test.surge, MaxUnavailable: &test.unavailable}
				create(c, d)
				// New pods take a second each to start.
				c.holdIf(func(p *corev1.Pod) bool { return true })
				setImage(c, "b")
				for range 200 {
					pods := c.pods()
					ready := 0
					var pending *corev1.Pod
					for _, p := range pods {
						if podReady(p) && p.DeletionTimestamp == nil {
							ready++
						} else if p.Status.Phase == corev1.PodPending {
							pending = p
						}
					}
					if ready < test.least || len(pods) > test.most {
						t.Fatalf("%d pods, %d of them ready: want at most %d, at least %d ready", len(pods), ready, test.most, test.least)
					}
					if pending == nil && c.sizes() == "b:10" {
						return
					}
					if pending != nil {
						c.setPod(pending.Name, corev1.PodRunning)
					}
					c.settle()
				}
				t.Errorf("never arrived: %s", c.sizes())
			})
		})
	}
}

func TestDeploymentProgressDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		d := deployment(2, "a")
		d.Spec.ProgressDeadlineSeconds = ptr.To[int32](60)
		create(c, d)
		c.holdIf(func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "broken" })
		time.Sleep(time.Hour)
		setImage(c, "broken")
		broken := c.sets()["broken"]
		got := conditionText(read[*appsv1.Deployment](c, "web"), appsv1.DeploymentProgressing)
		if want := fmt.Sprintf("True ReplicaSetUpdated ReplicaSet %q is progressing.", broken.Name); got != want {
			t.Errorf("under way Progressing is %q, want %q", got, want)
		}
		time.Sleep(65 * time.Second)
		c.settle()
		got = conditionText(read[*appsv1.Deployment](c, "web"), appsv1.DeploymentProgressing)
		if want := fmt.Sprintf("False ProgressDeadlineExceeded ReplicaSet %q has timed out progressing.", broken.Name); got != want {
			t.Errorf("after the deadline Progressing is %q, want %q", got, want)
		}
		setImage(c, "a")
		got = conditionText(read[*appsv1.Deployment](c, "web"), appsv1.DeploymentProgressing)
		if want := fmt.Sprintf("True NewReplicaSetAvailable ReplicaSet %q has successfully progressed.", c.sets()["a"].Name); got != want {
			t.Errorf("rolled back Progressing is %q, want %q", got, want)
		}
	})
}

// A roll-back long after an earlier arrival has its own deadline.
func TestDeploymentRollbackIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		create(c, deployment(2, "a"))
		setImage(c, "b")
		time.Sleep(time.Hour)
		var mu = make(chan string, 100)
		c.watch(func(e client.Event) {
			if d, ok := e.New.(*appsv1.Deployment); ok {
				if cond := deploymentCondition(&d.Status, appsv1.DeploymentProgressing); cond != nil {
					mu <- cond.Reason
				}
			}
		}, client.For[*appsv1.Deployment](c).Scope())
		setImage(c, "a")
		close(mu)
		for reason := range mu {
			if reason == "ProgressDeadlineExceeded" {
				t.Error("the roll-back was reported late at once")
			}
		}
	})
}

func TestDeploymentPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		create(c, deployment(2, "a"))
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Paused = true })
		setImage(c, "b")
		d := read[*appsv1.Deployment](c, "web")
		if got, want := conditionText(d, appsv1.DeploymentProgressing), "Unknown DeploymentPaused Deployment is paused"; got != want || c.sizes() != "a:2" {
			t.Errorf("paused: %q with %s, want %q with a:2", got, c.sizes(), want)
		}
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) })
		if got := c.sizes(); got != "a:5" {
			t.Errorf("scaled while paused %s, want a:5", got)
		}
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
		if got := c.sizes(); got != "b:5" {
			t.Errorf("resumed %s, want b:5", got)
		}
	})
}

func TestDeploymentScalesInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		d := deployment(10, "a")
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(3)), MaxUnavailable: ptr.To(intstr.FromInt32(2))}
		create(c, d)
		c.holdIf(func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "b" })
		setImage(c, "b")
		if got := c.sizes(); got != "a:8 b:5" {
			t.Fatalf("stuck at %s, want a:8 b:5", got)
		}
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](15) })
		// The example of the Kubernetes documentation: of 5 more, 3 go to the bigger and 2 to the smaller.
		if got := c.sizes(); got != "a:11 b:7" {
			t.Errorf("scaled to %s, want a:11 b:7", got)
		}
	})
}

func TestDeploymentRecreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		d := deployment(3, "a")
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		create(c, d)
		mixed := false
		images := map[string]string{}
		c.watch(func(e client.Event) {
			if p, ok := e.Object().(*corev1.Pod); ok {
				if e.New == nil {
					delete(images, p.Name)
				} else {
					images[p.Name] = p.Spec.Containers[0].Image
				}
				seen := map[string]bool{}
				for _, image := range images {
					seen[image] = true
				}
				mixed = mixed || len(seen) > 1
			}
		}, client.For[*corev1.Pod](c).Scope())
		setImage(c, "b")
		if got := c.sizes(); got != "b:3" || mixed {
			t.Errorf("arrived at %s, want b:3; old and new pods at the same time: %v", got, mixed)
		}
	})
}

func TestDeploymentHistoryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		d := deployment(1, "a")
		d.Spec.RevisionHistoryLimit = ptr.To[int32](1)
		create(c, d)
		for _, image := range []string{"b", "c", "d"} {
			setImage(c, image)
		}
		sets := c.sets()
		if len(sets) != 2 || sets["c"] == nil || sets["d"] == nil {
			t.Errorf("%d ReplicaSets are kept, want those of c and d", len(sets))
		}
	})
}

func TestDeploymentNameCollision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		template := podTemplate("web", "a")
		d := deployment(1, "a")
		client.For[*appsv1.Deployment](c).Kind().Default(d)
		squatter := replicaSet(0)
		squatter.Name = "web-" + templateHash(&d.Spec.Template, nil)
		squatter.Spec.Template = template
		squatter.Spec.Template.Labels = map[string]string{"app": "squatter"}
		squatter.Spec.Selector = selectApp("squatter")
		create(c, squatter)
		create(c, d)
		got := read[*appsv1.Deployment](c, "web")
		if got.Status.CollisionCount == nil || *got.Status.CollisionCount != 1 || got.Status.AvailableReplicas != 1 {
			t.Errorf("status %+v, want one collision and one replica", got.Status)
		}
	})
}

func TestDeploymentAdoptsReplicaSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		create(c, deployment(2, "a"))
		rs := c.sets()["a"].DeepCopy()
		rs.OwnerReferences = nil
		c.Put(rs)
		c.settle()
		if sets := c.sets(); len(sets) != 1 || metav1.GetControllerOf(sets["a"]) == nil {
			t.Errorf("the orphan was not adopted: %v", sets["a"].OwnerReferences)
		}
	})
}

func TestDeploymentReplicaFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startDeployments(t)
		create(c, deployment(2, "a"))
		rs := c.sets()["a"].DeepCopy()
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "quota"}}
		rs.Spec.Replicas = ptr.To[int32](2)
		d := &rollout{Deployment: read[*appsv1.Deployment](c, "web").DeepCopy(), current: rs, all: []*appsv1.ReplicaSet{rs}}
		d.failure(&d.Status)
		if got := conditionText(d.Deployment, appsv1.DeploymentReplicaFailure); got != "True FailedCreate quota" {
			t.Errorf("ReplicaFailure is %q", got)
		}
	})
}
