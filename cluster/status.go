package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa/internal/pki"
	"proa/node/images"
	"proa/store/embedded"
)

// PrintStatus writes how the cluster is: the server, its readiness, memory, nodes and pods. In the directory of an agent it
// writes how the node is.
func PrintStatus(ctx context.Context, dir string, out io.Writer) error {
	s, err := Running(dir)
	if err != nil {
		return err
	}
	if s.Agent {
		return printAgent(ctx, dir, s, out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ready := "ready"
	if _, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		ready = "not ready: " + err.Error()
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	readyNodes, running := 0, 0
	for i := range nodes.Items {
		if nodeReady(&nodes.Items[i]) {
			readyNodes++
		}
	}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "server\t%s, %s\n", s.Server, ready)
	fmt.Fprintf(w, "process\t%d, up %s, %s resident\n", s.PID, time.Since(s.Started).Round(time.Second), resident(s.PID))
	fmt.Fprintf(w, "nodes\t%d of %d ready\n", readyNodes, len(nodes.Items))
	fmt.Fprintf(w, "pods\t%d of %d running\n", running, len(pods.Items))
	fmt.Fprintf(w, "version\t%s\n", Version)
	fmt.Fprintf(w, "data\t%s\n", dir)
	return w.Flush()
}

func nodeReady(n *corev1.Node) bool {
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// printAgent asks the server how this machine's node is.
func printAgent(ctx context.Context, dir string, s *State, out io.Writer) error {
	id, err := loadIdentity(dir)
	if err != nil {
		return fmt.Errorf("the agent (process %d) has not joined %s yet: %w", s.PID, s.Server, err)
	}
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.Server, Timeout: 10 * time.Second, TLSClientConfig: rest.TLSClientConfig{
		CAData: []byte(id.Authority), CertData: []byte(id.Certificate), KeyData: []byte(id.Key),
	}})
	if err != nil {
		return err
	}
	ready := "ready"
	if node, err := c.CoreV1().Nodes().Get(ctx, s.Nodes[0], metav1.GetOptions{}); err != nil {
		ready = "unknown: " + err.Error()
	} else if !nodeReady(node) {
		ready = "not ready"
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "node\t%s of %s, %s\n", s.Nodes[0], s.Server, ready)
	fmt.Fprintf(w, "process\t%d, up %s, %s resident\n", s.PID, time.Since(s.Started).Round(time.Second), resident(s.PID))
	fmt.Fprintf(w, "version\t%s\n", Version)
	fmt.Fprintf(w, "data\t%s\n", dir)
	return w.Flush()
}

// resident is the resident memory of a process, as the kernel prints it.
func resident(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

// JoinCommand is what to type on a machine that is to join the cluster in dir, or "" when nobody else reaches its API.
func JoinCommand(dir, token string) string {
	s, err := loadState(dir)
	if err != nil || s.NodeAddress == "" {
		return ""
	}
	api, err := url.Parse(s.Server)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("proa agent --server https://%s --token %s", net.JoinHostPort(s.NodeAddress, api.Port()), token)
}

// Token is the join token of the cluster in dir.
func Token(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "pki", "join.secret"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s holds no cluster; start one with: %s", dir, command(dir, "up"))
	}
	if err != nil {
		return "", err
	}
	ca, err := pki.LoadAuthority(filepath.Join(dir, "pki"), "ca")
	if err != nil {
		return "", err
	}
	return strings.Join([]string{tokenPrefix, ca.Hash(), strings.TrimSpace(string(data))}, "."), nil
}

// LoadImages imports image archives into the containerd of every node of this machine.
func LoadImages(ctx context.Context, dir string, archives []string, out io.Writer) error {
	s, err := Running(dir)
	if err != nil {
		return err
	}
	if len(s.Nodes) == 0 {
		return errors.New("this cluster has no real node to load images into")
	}
	for _, name := range s.Nodes {
		for _, archive := range archives {
			loaded, err := images.ImportFile(ctx, filepath.Join(s.nodeDir(dir, name), "containerd", "containerd.sock"), archive)
			if err != nil {
				return fmt.Errorf("load %s into node %s: %w", archive, name, err)
			}
			fmt.Fprintf(out, "%s: %s\n", name, strings.Join(loaded, ", "))
		}
	}
	return nil
}

// RepairStore saves what can be saved of a damaged store.
func RepairStore(ctx context.Context, dir string, out io.Writer) error {
	if _, err := Running(dir); !errors.Is(err, ErrNotRunning) {
		return errors.Join(errors.New("stop the server first: "+command(dir, "down")), err)
	}
	report, err := embedded.Repair(filepath.Join(dir, "store"), embedded.Options{})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, report)
	return err
}

// probe reports whether the demo answers.
func probe(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13}}}).Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}
