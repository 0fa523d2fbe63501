package dns

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
)

// noClient stands where a client is needed but not used: the tests hand over events themselves.
type noClient struct{ client.Interface }

func server(t testing.TB, upstreams ...netip.AddrPort) *Server {
	t.Helper()
	s, err := New(Config{
		Client: noClient{}, Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:10053")}, Upstreams: upstreams,
		ResolvConf: filepath.Join(t.TempDir(), "absent"),
	})
	if err != nil {
		t.Fatal(err)
	}
	resource := new(api.Resource)
	meta := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	slice := func(service string, ports []discoveryv1.EndpointPort, ends ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		m := meta("default", service+"-1")
		m.Labels = map[string]string{discoveryv1.LabelServiceName: service}
		return &discoveryv1.EndpointSlice{ObjectMeta: m, Ports: ports, Endpoints: ends}
	}
	end := func(ip, hostname string, ready bool) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
		if hostname != "" {
			e.Hostname = &hostname
		}
		return e
	}
	https := []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8443)}}
	headless := corev1.ServiceSpec{
		ClusterIP: "None", ClusterIPs: []string{"None"},
		Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}},
	}
	eager := headless
	eager.PublishNotReadyAddresses = true
	for _, obj := range []api.Object{
		&corev1.Namespace{ObjectMeta: meta("", "default")}, &corev1.Namespace{ObjectMeta: meta("", "kube-system")},
		&corev1.Service{ObjectMeta: meta("kube-system", "kube-dns"), Spec: corev1.ServiceSpec{ClusterIP: "10.3.0.10"}},
		&corev1.Service{ObjectMeta: meta("default", "kubernetes"), Spec: corev1.ServiceSpec{
			ClusterIP: "10.3.0.1", ClusterIPs: []string{"10.3.0.1", "2001:db8::1"},
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}, {Protocol: corev1.ProtocolUDP, Port: 9}},
		}},
		&corev1.Service{ObjectMeta: meta("default", "headless"), Spec: headless},
		&corev1.Service{ObjectMeta: meta("default", "eager"), Spec: eager},
		&corev1.Service{ObjectMeta: meta("default", "empty"), Spec: headless},
		&corev1.Service{ObjectMeta: meta("default", "foo"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "www.example.com"}},
		&corev1.Service{ObjectMeta: meta("default", "inner"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "kubernetes.default.svc.cluster.local"}},
		slice("headless", https, end("10.3.0.100", "my-pet", true), end("10.3.0.101", "", true), end("10.3.0.102", "late", false)),
		slice("eager", https, end("10.3.0.110", "early", false)),
	} {
		s.records.observe(client.Event{Resource: resource, New: obj})
	}
	s.records.observe(client.Event{})
	return s
}

func query(s *Server, name string, kind uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	return s.Answer(context.Background(), q, true)
}

// lines are the records as text with single spaces, sorted.
func lines(rrs []dns.RR) []string {
	var out []string
	for _, rr := range rrs {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	slices.Sort(out)
	return out
}

// The cases follow the examples of the specification.
func TestSpecification(t *testing.T) {
	s := server(t)
	const missing, none = dns.RcodeNameError, dns.RcodeSuccess
	tests := []struct {
		name  string
		kind  uint16
		rcode int
		want  []string
		extra []string
	}{
		{name: "dns-version.cluster.local.", kind: dns.TypeTXT, want: []string{`dns-version.cluster.local. 5 IN TXT "1.1.0"`}},
		{name: "kubernetes.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"kubernetes.default.svc.cluster.local. 5 IN A 10.3.0.1"}},
		{name: "KUBERNETES.Default.svc.cluster.local.", kind: dns.TypeA, want: []string{"KUBERNETES.Default.svc.cluster.local. 5 IN A 10.3.0.1"}},
		{name: "kubernetes.default.svc.cluster.local.", kind: dns.TypeAAAA, want: []string{"kubernetes.default.svc.cluster.local. 5 IN AAAA 2001:db8::1"}},
		{name: "kubernetes.default.svc.cluster.local.", kind: dns.TypeMX, rcode: none},
		{name: "_https._tcp.kubernetes.default.svc.cluster.local.", kind: dns.TypeSRV,
			want: []string{"_https._tcp.kubernetes.default.svc.cluster.local. 5 IN SRV 0 100 443 kubernetes.default.svc.cluster.local."},
			extra: []string{"kubernetes.default.svc.cluster.local. 5 IN A 10.3.0.1",
				"kubernetes.default.svc.cluster.local. 5 IN AAAA 2001:db8::1"}},
		{name: "_https._udp.kubernetes.default.svc.cluster.local.", kind: dns.TypeSRV, rcode: missing},
		{name: "_tcp.kubernetes.default.svc.cluster.local.", kind: dns.TypeSRV, rcode: none},
		{name: "1.0.3.10.in-addr.arpa.", kind: dns.TypePTR, want: []string{"1.0.3.10.in-addr.arpa. 5 IN PTR kubernetes.default.svc.cluster.local."}},
		{name: "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", kind: dns.TypePTR,
			want: []string{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 5 IN PTR kubernetes.default.svc.cluster.local."}},
		{name: "headless.default.svc.cluster.local.", kind: dns.TypeA, want: []string{
			"headless.default.svc.cluster.local. 5 IN A 10.3.0.100", "headless.default.svc.cluster.local. 5 IN A 10.3.0.101"}},
		{name: "my-pet.headless.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"my-pet.headless.default.svc.cluster.local. 5 IN A 10.3.0.100"}},
		{name: "10-3-0-101.headless.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"10-3-0-101.headless.default.svc.cluster.local. 5 IN A 10.3.0.101"}},
		{name: "late.headless.default.svc.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "_https._tcp.headless.default.svc.cluster.local.", kind: dns.TypeSRV,
			want: []string{
				"_https._tcp.headless.default.svc.cluster.local. 5 IN SRV 0 50 8443 10-3-0-101.headless.default.svc.cluster.local.",
				"_https._tcp.headless.default.svc.cluster.local. 5 IN SRV 0 50 8443 my-pet.headless.default.svc.cluster.local."},
			extra: []string{"10-3-0-101.headless.default.svc.cluster.local. 5 IN A 10.3.0.101",
				"my-pet.headless.default.svc.cluster.local. 5 IN A 10.3.0.100"}},
		{name: "100.0.3.10.in-addr.arpa.", kind: dns.TypePTR, want: []string{"100.0.3.10.in-addr.arpa. 5 IN PTR my-pet.headless.default.svc.cluster.local."}},
		{name: "early.eager.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"early.eager.default.svc.cluster.local. 5 IN A 10.3.0.110"}},
		{name: "empty.default.svc.cluster.local.", kind: dns.TypeA, rcode: none},
		{name: "foo.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"foo.default.svc.cluster.local. 5 IN CNAME www.example.com."}},
		{name: "inner.default.svc.cluster.local.", kind: dns.TypeA, want: []string{
			"inner.default.svc.cluster.local. 5 IN CNAME kubernetes.default.svc.cluster.local.", "kubernetes.default.svc.cluster.local. 5 IN A 10.3.0.1"}},
		{name: "1-2-3-4.default.pod.cluster.local.", kind: dns.TypeA, want: []string{"1-2-3-4.default.pod.cluster.local. 5 IN A 1.2.3.4"}},
		{name: "2001-db8--7.default.pod.cluster.local.", kind: dns.TypeAAAA, want: []string{"2001-db8--7.default.pod.cluster.local. 5 IN AAAA 2001:db8::7"}},
		{name: "1-2-3-4.nowhere.pod.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "word.default.pod.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "ns.dns.cluster.local.", kind: dns.TypeA, want: []string{"ns.dns.cluster.local. 5 IN A 10.3.0.10"}},
		{name: "cluster.local.", kind: dns.TypeNS, want: []string{"cluster.local. 5 IN NS ns.dns.cluster.local."}},
		{name: "svc.cluster.local.", kind: dns.TypeA, rcode: none},
		{name: "default.svc.cluster.local.", kind: dns.TypeA, rcode: none},
		{name: "nowhere.svc.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "absent.default.svc.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "a.b.c.d.default.svc.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "www.example.com.default.svc.cluster.local.", kind: dns.TypeA, rcode: missing},
		{name: "www.example.com.", kind: dns.TypeA, rcode: dns.RcodeServerFailure},
	}
	for _, tt := range tests {
		t.Run(tt.name+dns.TypeToString[tt.kind], func(t *testing.T) {
			m := query(s, tt.name, tt.kind)
			if m.Rcode != tt.rcode {
				t.Errorf("answer is %s, want %s", dns.RcodeToString[m.Rcode], dns.RcodeToString[tt.rcode])
			}
			if diff := cmp.Diff(tt.want, lines(m.Answer)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.extra, lines(m.Extra)); diff != "" {
				t.Errorf("additional records (-want +got):\n%s", diff)
			}
			inZone := strings.HasSuffix(tt.name, "cluster.local.")
			if soa := len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA; soa != (inZone && len(tt.want) == 0) {
				t.Errorf("authority is %v; a missing name or type needs the SOA, others do not", lines(m.Ns))
			}
		})
	}
}

func TestBeforeSync(t *testing.T) {
	s := server(t)
	s.records.synced.Store(false)
	if m := query(s, "kubernetes.default.svc.cluster.local.", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("before the objects are known the answer is %s, want SERVFAIL", dns.RcodeToString[m.Rcode])
	}
}

func TestTruncation(t *testing.T) {
	s := server(t)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "many", Labels: map[string]string{discoveryv1.LabelServiceName: "empty"}}}
	for i := range 200 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String()}})
	}
	s.records.observe(client.Event{Resource: new(api.Resource), New: slice})
	tests := []struct {
		name     string
		edns     uint16
		tcp      bool
		limit    int
		complete bool
	}{
		{"udp", 0, false, 512, false},
		{"udp with edns", 1232, false, 1232, false},
		{"udp with more than is safe", 65000, false, 1232, false},
		{"tcp", 0, true, 65535, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := new(dns.Msg)
			q.SetQuestion("empty.default.svc.cluster.local.", dns.TypeA)
			if tt.edns > 0 {
				q.SetEdns0(tt.edns, false)
			}
			m := s.Answer(t.Context(), q, tt.tcp)
			data, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > tt.limit || m.Truncated == tt.complete || (len(m.Answer) == 200) != tt.complete {
				t.Errorf("%d bytes, truncated %v, %d records; want up to %d bytes and complete %v",
					len(data), m.Truncated, len(m.Answer), tt.limit, tt.complete)
			}
			if (m.IsEdns0() != nil) != (tt.edns > 0) {
				t.Error("the answer has EDNS exactly when the query has")
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	s := server(t)
	tests := []struct {
		name   string
		change func(*dns.Msg)
		want   int
	}{
		{"zone transfer", func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		{"other class", func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		{"update", func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		{"no question", func(q *dns.Msg) { q.Question = nil }, dns.RcodeFormatError},
		{"newer edns", func(q *dns.Msg) { q.SetEdns0(1232, false); q.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := new(dns.Msg)
			q.SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA)
			tt.change(q)
			if m := s.Answer(t.Context(), q, false); m.Rcode != tt.want || len(m.Answer) > 0 {
				t.Errorf("answer is %s with %d records, want %s", dns.RcodeToString[m.Rcode], len(m.Answer), dns.RcodeToString[tt.want])
			}
		})
	}
}

// questions are the names that a resolver was asked for.
type questions struct {
	mu    sync.Mutex
	names []string
}

func (q *questions) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names = append(q.names, name)
}

// upstream is a resolver that notes its queries.
func upstream(t *testing.T, asked *questions) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(buf[:n]) != nil {
				continue
			}
			asked.add(q.Question[0].Name)
			m := new(dns.Msg)
			m.SetReply(q)
			if q.Question[0].Name == "www.example.com." {
				rr, _ := dns.NewRR("www.example.com. 300 IN A 192.0.2.80")
				m.Answer = []dns.RR{rr}
			} else {
				m.Rcode = dns.RcodeNameError
				rr, _ := dns.NewRR("example.com. 300 IN SOA ns.example.com. x.example.com. 1 2 3 4 60")
				m.Ns = []dns.RR{rr}
			}
			data, _ := m.Pack()
			conn.WriteTo(data, from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestForward(t *testing.T) {
	var asked questions
	s := server(t, upstream(t, &asked))
	now := time.Now()
	s.forward.now = func() time.Time { return now }
	if got := lines(query(s, "www.example.com.", dns.TypeA).Answer); len(got) != 1 || got[0] != "www.example.com. 300 IN A 192.0.2.80" {
		t.Errorf("forwarded answer is %v", got)
	}
	now = now.Add(10 * time.Second)
	if got := lines(query(s, "WWW.example.com.", dns.TypeA).Answer); len(got) != 1 || got[0] != "www.example.com. 290 IN A 192.0.2.80" {
		t.Errorf("remembered answer is %v, want one that is ten seconds older", got)
	}
	want := []string{"foo.default.svc.cluster.local. 5 IN CNAME www.example.com.", "www.example.com. 290 IN A 192.0.2.80"}
	if diff := cmp.Diff(want, lines(query(s, "foo.default.svc.cluster.local.", dns.TypeA).Answer)); diff != "" {
		t.Errorf("external name (-want +got):\n%s", diff)
	}
	for range 2 {
		if m := query(s, "nope.example.com.", dns.TypeA); m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 {
			t.Errorf("missing name gives %s", dns.RcodeToString[m.Rcode])
		}
	}
	now = now.Add(time.Minute)
	query(s, "www.example.com.", dns.TypeA)
	asked.mu.Lock()
	defer asked.mu.Unlock()
	if diff := cmp.Diff([]string{"www.example.com.", "nope.example.com.", "www.example.com."}, asked.names); diff != "" {
		t.Errorf("queries to the resolver (-want +got):\n%s", diff)
	}
}

func TestResolversFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver 10.96.0.10\nnameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newForwarder(Config{ResolvConf: path, Avoid: []netip.Addr{netip.MustParseAddr("10.96.0.10")}})
	if got := f.resolvers(); len(got) != 1 || got[0].String() != "192.0.2.53:53" {
		t.Errorf("resolvers are %v, want the one that does not lead back", got)
	}
}

func FuzzAnswer(f *testing.F) {
	s := server(f)
	for _, name := range []string{
		"kubernetes.default.svc.cluster.local.", "_https._tcp.headless.default.svc.cluster.local.", "1.0.3.10.in-addr.arpa.",
		"1-2-3-4.default.pod.cluster.local.", ".", "cluster.local.", "foo.default.svc.cluster.local.",
	} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeANY)
		q.SetEdns0(1232, true)
		data, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := new(dns.Msg)
		if q.Unpack(data) != nil {
			return
		}
		m := s.Answer(context.Background(), q, false)
		if out, err := m.Pack(); err == nil && len(out) > maxUDP {
			t.Errorf("answer has %d bytes", len(out))
		}
		if m.Id != q.Id || !m.Response {
			t.Errorf("answer %v does not belong to the query", m.MsgHdr)
		}
	})
}
