// Package dns answers names of the cluster as the Kubernetes DNS-Based Service Discovery specification 1.1.0 says, from the
// shared Service and EndpointSlice objects, and forwards all other names to the node's resolvers. It listens on addresses of a
// node; pods reach it through the kube-dns Service like any other endpoint.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"proa/client"
	"proa/internal/netns"
)

// Config of the DNS server.
type Config struct {
	Client client.Interface
	// Addrs are where it listens, with UDP and TCP.
	Addrs []netip.AddrPort
	// Domain of the cluster. Default "cluster.local".
	Domain string
	// ResolvConf names the file with the resolvers for other names; it is read again when it changes. Default
	// /etc/resolv.conf. Upstreams, if any, are used instead.
	ResolvConf string
	Upstreams  []netip.AddrPort
	// Avoid are addresses that lead back here, such as that of the DNS Service.
	Avoid []netip.Addr
	// NetNS is the path of the network namespace to listen in and to forward from. Default: that of this process.
	NetNS string
	Log   *slog.Logger
}

// ttl of the cluster's records, in seconds. Endpoints come and go, so nobody should keep them long.
const ttl = 5

// Limits of a query: how long it may take, how many may wait for resolvers at once, and how large an answer by UDP may
// be without danger of fragments.
const (
	queryTimeout = 5 * time.Second
	maxForwards  = 1000
	maxUDP       = 1232
)

// Server of the cluster's names. Use New.
type Server struct {
	config  Config
	zone    string
	log     *slog.Logger
	records *records
	forward *forwarder
}

// New returns a server that does nothing until Run.
func New(c Config) (*Server, error) {
	if c.Client == nil || len(c.Addrs) == 0 {
		return nil, errors.New("the DNS server needs a client and an address")
	}
	c.Domain = strings.Trim(cmp.Or(c.Domain, "cluster.local"), ".")
	c.ResolvConf = cmp.Or(c.ResolvConf, "/etc/resolv.conf")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		config: c, zone: strings.ToLower(c.Domain) + ".", log: c.Log.With("component", "dns"),
		records: newRecords(), forward: newForwarder(c),
	}, nil
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	servers, err := s.listen(ctx)
	if err != nil {
		return err
	}
	wg.Go(func() {
		cancel(s.config.Client.Subscribe(ctx, s.records.observe, s.records.scopes(s.config.Client)...))
	})
	for _, server := range servers {
		wg.Go(func() {
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("serve dns: %w", err))
			}
		})
	}
	<-ctx.Done()
	for _, server := range servers {
		shutdown(server)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listen opens all sockets, or none.
func (s *Server) listen(ctx context.Context) (servers []*dns.Server, err error) {
	defer func() {
		if err != nil {
			for _, server := range servers {
				closeSockets(server)
			}
		}
	}()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		_, tcp := w.RemoteAddr().(*net.TCPAddr)
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		if err := w.WriteMsg(s.Answer(ctx, q, tcp)); err != nil {
			s.log.Debug("dns answer not sent", "to", w.RemoteAddr(), "err", err)
		}
	})
	for _, addr := range s.config.Addrs {
		packets, err := netns.ListenPacket(ctx, s.config.NetNS, "udp", addr.String())
		if err != nil {
			return servers, fmt.Errorf("listen for dns: %w", err)
		}
		servers = append(servers, &dns.Server{PacketConn: packets, Handler: handler, UDPSize: dns.DefaultMsgSize})
		listener, err := netns.Listen(ctx, s.config.NetNS, "tcp", addr.String())
		if err != nil {
			return servers, fmt.Errorf("listen for dns: %w", err)
		}
		servers = append(servers, &dns.Server{Listener: listener, Handler: handler})
	}
	return servers, nil
}

// shutdown stops a server. One that has not started yet only has its sockets closed, and then fails to start.
func shutdown(server *dns.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.ShutdownContext(ctx); err != nil {
		closeSockets(server)
	}
}

func closeSockets(server *dns.Server) {
	if server.PacketConn != nil {
		server.PacketConn.Close()
	}
	if server.Listener != nil {
		server.Listener.Close()
	}
}

// Answer returns the answer to a message, ready to be sent by UDP or TCP. It never returns nil.
func (s *Server) Answer(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	m := s.answer(ctx, q, tcp)
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil {
		size = max(size, min(int(opt.UDPSize()), maxUDP))
		if m.IsEdns0() == nil {
			m.SetEdns0(maxUDP, opt.Do())
		}
		if opt.Version() != 0 {
			m.Answer, m.Ns = nil, nil
			m.IsEdns0().SetVersion(0)
			m.Rcode = dns.RcodeBadVers
		}
	}
	if tcp {
		size = dns.MaxMsgSize
	}
	m.Compress = true
	m.Truncate(size)
	return m
}

func (s *Server) answer(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	m := new(dns.Msg)
	switch {
	case q.Response || len(q.Question) != 1:
		return m.SetRcodeFormatError(q)
	case q.Opcode != dns.OpcodeQuery:
		return m.SetRcode(q, dns.RcodeNotImplemented)
	}
	m.SetReply(q)
	m.RecursionAvailable = true
	question := q.Question[0]
	name := strings.ToLower(question.Name)
	if question.Qclass != dns.ClassINET && question.Qclass != dns.ClassANY ||
		question.Qtype == dns.TypeAXFR || question.Qtype == dns.TypeIXFR {
		m.Rcode = dns.RcodeRefused
		return m
	}
	switch {
	case dns.IsSubDomain(s.zone, name):
		s.inZone(ctx, m, question, name)
	case dns.IsSubDomain("in-addr.arpa.", name) || dns.IsSubDomain("ip6.arpa.", name):
		if !s.reverse(m, question, name) {
			return s.forward.ask(ctx, q, tcp)
		}
	default:
		return s.forward.ask(ctx, q, tcp)
	}
	return m
}

// inZone answers a name of the cluster.
func (s *Server) inZone(ctx context.Context, m *dns.Msg, q dns.Question, name string) {
	if !s.records.synced.Load() {
		// Saying that a name does not exist before all are known would be remembered.
		m.Rcode = dns.RcodeServerFailure
		return
	}
	m.Authoritative = true
	r := s.records.lookup(s.zone, name)
	if !r.exists {
		m.Rcode = dns.RcodeNameError
		m.Ns = []dns.RR{s.soa()}
		return
	}
	if r.alias != "" {
		s.follow(ctx, m, q, r.alias)
		return
	}
	for _, rr := range r.rrs {
		if t := rr.Header().Rrtype; t == q.Qtype || q.Qtype == dns.TypeANY {
			rr.Header().Name = q.Name
			m.Answer = append(m.Answer, rr)
			if t == dns.TypeSRV {
				m.Extra = append(m.Extra, r.extra[rr.(*dns.SRV).Target]...)
			}
		}
	}
	if name == s.zone && q.Qtype == dns.TypeSOA {
		m.Answer = append(m.Answer, s.soa())
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{s.soa()}
	}
}

// follow answers with a CNAME and what it leads to, which may be a name of the cluster or of the world.
func (s *Server) follow(ctx context.Context, m *dns.Msg, q dns.Question, target string) {
	m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: target})
	if q.Qtype == dns.TypeCNAME || q.Qtype == dns.TypeANY {
		return
	}
	if dns.IsSubDomain(s.zone, strings.ToLower(target)) {
		// One step only: Services that name each other in a circle must not keep us busy.
		if r := s.records.lookup(s.zone, strings.ToLower(target)); r.exists && r.alias == "" {
			for _, rr := range r.rrs {
				if rr.Header().Rrtype == q.Qtype {
					rr.Header().Name = target
					m.Answer = append(m.Answer, rr)
				}
			}
		}
		return
	}
	next := new(dns.Msg)
	next.SetQuestion(target, q.Qtype)
	if a := s.forward.ask(ctx, next, true); a.Rcode == dns.RcodeSuccess {
		m.Answer = append(m.Answer, a.Answer...)
	}
}

// reverse answers the name of an address, if the cluster has it.
func (s *Server) reverse(m *dns.Msg, q dns.Question, name string) bool {
	addr, ok := parseReverse(name)
	if !ok {
		return false
	}
	names := s.records.names(addr, s.zone)
	if len(names) == 0 {
		return false
	}
	m.Authoritative = true
	if q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY {
		for _, n := range names {
			m.Answer = append(m.Answer, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: n})
		}
		return true
	}
	m.Ns = []dns.RR{s.soa()}
	return true
}

// soa says how long a missing name may be remembered.
func (s *Server) soa() dns.RR {
	return &dns.SOA{
		Hdr: header(s.zone, dns.TypeSOA), Ns: "ns.dns." + s.zone, Mbox: "hostmaster." + s.zone,
		Serial: uint32(time.Now().Unix()), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}

func header(name string, t uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
}

// parseReverse returns the address that a name below in-addr.arpa or ip6.arpa means.
func parseReverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return addr, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 32 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := range parts {
		if len(parts[i]) != 1 {
			return netip.Addr{}, false
		}
		b.WriteString(parts[31-i])
		if i%4 == 3 && i < 31 {
			b.WriteByte(':')
		}
	}
	addr, err := netip.ParseAddr(b.String())
	return addr, err == nil
}
