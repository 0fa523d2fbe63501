package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// api sends requests as the administrator, with nothing between them and net/http.
type api struct {
	url string
	// h1 has a connection for each request under way; h2 has one for all, as client libraries do.
	h1, h2 *http.Client
}

func newAPI(kubeconfig string) (*api, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("%s has no current context", kubeconfig)
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	cert, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.CertificateAuthorityData)
	transport := func(http2 bool) *http.Client {
		t := &http.Transport{
			TLSClientConfig:     &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13},
			MaxIdleConnsPerHost: 1024,
			DisableCompression:  true,
			Protocols:           new(http.Protocols),
		}
		t.Protocols.SetHTTP1(!http2)
		t.Protocols.SetHTTP2(http2)
		return &http.Client{Transport: t}
	}
	return &api{url: cluster.Server, h1: transport(false), h2: transport(true)}, nil
}

// do sends a request; an answer other than 2xx is an error that quotes it.
func (a *api) do(ctx context.Context, c *http.Client, method, path, accept string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return response, nil
}

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

func (a *api) get(ctx context.Context, c *http.Client, path string, to io.Writer) error {
	return a.read(ctx, c, path, asJSON, to)
}

func (a *api) read(ctx context.Context, c *http.Client, path, accept string, to io.Writer) error {
	r, err := a.do(ctx, c, http.MethodGet, path, accept, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(to, r.Body)
	return err
}

func (a *api) post(ctx context.Context, c *http.Client, path string, body []byte) error {
	r, err := a.do(ctx, c, http.MethodPost, path, asJSON, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// load is what many clients did in a time.
type load struct {
	count     int
	took      time.Duration
	latencies []time.Duration // sorted
}

func (l load) rate() float64 { return float64(l.count) / l.took.Seconds() }

// percentile of the latencies, 0 to 100.
func (l load) percentile(p int) time.Duration {
	return l.latencies[min(len(l.latencies)*p/100, len(l.latencies)-1)]
}

// drive does one thing count times with so many clients; the first failure ends it.
func drive(ctx context.Context, clients, count int, one func(ctx context.Context, i int) error) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([]time.Duration, count)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				begin := time.Now()
				if err := one(ctx, i); err != nil {
					cancel(err)
				}
				latencies[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	l := load{count: count, took: time.Since(start), latencies: latencies}
	slices.Sort(latencies)
	return l, context.Cause(ctx)
}

// watch follows a list from now on and calls event with every line, which is valid only during the call.
func (a *api) watch(ctx context.Context, path string, event func(line []byte)) error {
	r, err := a.do(ctx, a.h1, http.MethodGet, path, asJSON, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return eachLine(r.Body, event)
}

// eachLine is a scanner without an allocation and with lines as long as they come.
func eachLine(r io.Reader, event func(line []byte)) error {
	buf := make([]byte, 0, 64<<10)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, cap(buf))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			line, after, found := bytes.Cut(rest, []byte{'\n'})
			if !found {
				break
			}
			event(line)
			rest = after
		}
		buf = append(buf[:0], rest...)
		if err != nil {
			return err
		}
	}
}

// revision is the resource version at which a list is now.
func (a *api) revision(ctx context.Context, path string) (string, error) {
	var buf bytes.Buffer
	if err := a.get(ctx, a.h1, path+"?limit=1", &buf); err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(buf.Bytes(), &list)
	return list.Metadata.ResourceVersion, err
}
