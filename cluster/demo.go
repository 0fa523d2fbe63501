package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"proa/node/images"
)

// The demo is a Deployment of three pods behind a NodePort Service.
const (
	demoName = "demo"
	demoPort = 30800
)

// Demo deploys a small web application, whose image comes with the binary, waits until it answers and prints its URL.
func Demo(ctx context.Context, dir string, s *State, out io.Writer) error {
	if len(s.Nodes) == 0 {
		return errors.New("the demo needs a node; start without --no-node")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the demo did not become ready within a minute; see: kubectl describe pods -l app=demo"))
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, name := range s.Nodes {
		if err := images.ImportDemo(ctx, filepath.Join(nodeDir(dir, name), "containerd", "containerd.sock")); err != nil {
			return fmt.Errorf("load the demo image into node %s: %w", name, err)
		}
	}
	labels := map[string]string{"app": demoName}
	_, err = c.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, demoDeployment(labels), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Creating the Service again would find its own node port taken before its name.
	services := c.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Get(ctx, demoName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		if _, err := services.Create(ctx, demoService(labels), metav1.CreateOptions{}); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := waitReady(ctx, c, out); err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s:%d/", s.NodeAddress, demoPort)
	for !probe(ctx, url) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	fmt.Fprintf(out, "demo application: %s\n", url)
	return nil
}

func demoDeployment(labels map[string]string) *appsv1.Deployment {
	replicas := int32(3)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: demoName, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: images.DemoImage, ImagePullPolicy: corev1.PullNever,
					Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}, PeriodSeconds: 5},
				}}},
			},
		},
	}
}

func demoService(labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: demoName, Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: labels,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), NodePort: demoPort}},
		},
	}
}

// waitReady follows the Deployment until all its pods are ready, and tells how many are.
func waitReady(ctx context.Context, c kubernetes.Interface, out io.Writer) error {
	w, err := c.AppsV1().Deployments(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", demoName).String(),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	last := int32(-1)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch of the demo ended early")
			}
			d, ok := e.Object.(*appsv1.Deployment)
			if !ok {
				return apierrors.FromObject(e.Object)
			}
			if n := d.Status.ReadyReplicas; n != last {
				fmt.Fprintf(out, "demo: %d of %d pods ready\n", n, *d.Spec.Replicas)
				last = n
			}
			if d.Status.ReadyReplicas == *d.Spec.Replicas {
				return nil
			}
		}
	}
}
