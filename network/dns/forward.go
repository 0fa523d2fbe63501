package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"proa/internal/netns"
)

// Limits of what is remembered of other names.
const (
	maxCached   = 4096
	maxCacheTTL = 30 * time.Second
	minRecheck  = 5 * time.Second // of the resolvers' file
	tryTimeout  = 2 * time.Second
)

// forwarder asks the node's resolvers and remembers their answers for a short while.
type forwarder struct {
	config Config
	busy   chan struct{}
	now    func() time.Time

	mu        sync.Mutex
	cache     map[cacheKey]cached
	upstreams []netip.AddrPort
	modified  time.Time
	checked   time.Time
}

type cacheKey struct {
	name   string
	kind   uint16
	dnssec bool
}

type cached struct {
	msg        *dns.Msg
	at, expire time.Time
}

func newForwarder(c Config) *forwarder {
	return &forwarder{config: c, busy: make(chan struct{}, maxForwards), now: time.Now, cache: map[cacheKey]cached{}}
}

// ask returns the resolvers' answer to q, or a server failure.
func (f *forwarder) ask(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	failure := new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
	failure.RecursionAvailable = true
	opt := q.IsEdns0()
	key := cacheKey{strings.ToLower(q.Question[0].Name), q.Question[0].Qtype, opt != nil && opt.Do()}
	if m := f.remembered(key); m != nil {
		return reply(q, m)
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	default:
		return failure // so many unanswered queries are a loop or a resolver that is away
	}
	query := new(dns.Msg)
	query.SetQuestion(q.Question[0].Name, q.Question[0].Qtype)
	query.Question[0].Qclass = q.Question[0].Qclass
	query.CheckingDisabled = q.CheckingDisabled
	query.SetEdns0(maxUDP, key.dnssec)
	for _, upstream := range f.resolvers() {
		m, err := f.exchange(ctx, query, upstream, tcp)
		if err != nil || m.Rcode == dns.RcodeServerFailure || m.Rcode == dns.RcodeRefused {
			if ctx.Err() != nil {
				break
			}
			continue
		}
		f.remember(key, m)
		return reply(q, m)
	}
	return failure
}

// reply makes the answer to q from another's.
func reply(q, from *dns.Msg) *dns.Msg {
	m := from.Copy()
	m.Id, m.Question, m.RecursionDesired = q.Id, q.Question, q.RecursionDesired
	m.Response, m.Authoritative, m.RecursionAvailable = true, false, true
	extra := m.Extra[:0]
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			extra = append(extra, rr)
		}
	}
	m.Extra = extra
	return m
}

func (f *forwarder) exchange(ctx context.Context, q *dns.Msg, to netip.AddrPort, tcp bool) (*dns.Msg, error) {
	networks := []string{"udp", "tcp"}
	if !tcp {
		networks = networks[:1] // a truncated answer tells the asker to come back by TCP
	}
	var last *dns.Msg
	for _, network := range networks {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		m, err := f.once(ctx, q, network, to)
		cancel()
		if err != nil {
			return last, err
		}
		if last = m; !m.Truncated {
			break
		}
	}
	return last, nil
}

func (f *forwarder) once(ctx context.Context, q *dns.Msg, network string, to netip.AddrPort) (*dns.Msg, error) {
	var conn net.Conn
	err := netns.Do(f.config.NetNS, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, to.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial resolver: %w", err)
	}
	defer conn.Close()
	m := q.Copy()
	m.Id = dns.Id()
	answer, _, err := (&dns.Client{Net: network, Timeout: tryTimeout}).ExchangeWithConnContext(ctx, m, &dns.Conn{Conn: conn, UDPSize: maxUDP})
	if err != nil {
		return nil, fmt.Errorf("ask resolver %v: %w", to, err)
	}
	return answer, nil
}

// resolvers returns whom to ask. The file is looked at now and then, since networks change.
func (f *forwarder) resolvers() []netip.AddrPort {
	if len(f.config.Upstreams) > 0 {
		return f.usable(f.config.Upstreams)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if !f.checked.IsZero() && now.Sub(f.checked) < minRecheck {
		return f.upstreams
	}
	f.checked = now
	info, err := os.Stat(f.config.ResolvConf)
	if err != nil || info.ModTime().Equal(f.modified) {
		return f.upstreams
	}
	conf, err := dns.ClientConfigFromFile(f.config.ResolvConf)
	if err != nil {
		return f.upstreams
	}
	f.modified = info.ModTime()
	port, err := strconv.ParseUint(conf.Port, 10, 16)
	if err != nil {
		port = 53
	}
	var list []netip.AddrPort
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			list = append(list, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	f.upstreams = f.usable(list)
	return f.upstreams
}

// usable drops the resolvers that are this server itself.
func (f *forwarder) usable(list []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
next:
	for _, u := range list {
		for _, a := range f.config.Addrs {
			if a == u {
				continue next
			}
		}
		for _, a := range f.config.Avoid {
			if a == u.Addr() {
				continue next
			}
		}
		out = append(out, u)
	}
	return out
}

func (f *forwarder) remembered(key cacheKey) *dns.Msg {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.cache[key]
	now := f.now()
	if !ok || !now.Before(c.expire) {
		delete(f.cache, key)
		return nil
	}
	m := c.msg.Copy()
	age := uint32(now.Sub(c.at) / time.Second)
	for _, list := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range list {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return m
}

func (f *forwarder) remember(key cacheKey, m *dns.Msg) {
	life := lifetime(m)
	if m.Truncated || life <= 0 || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cache) >= maxCached {
		for k := range f.cache { // any one: the order of a map is as good as chance
			delete(f.cache, k)
			break
		}
	}
	now := f.now()
	f.cache[key] = cached{m.Copy(), now, now.Add(life)}
}

// lifetime is how long an answer may be remembered: no longer than any of its records and, without records, than the zone
// lets a missing name.
func lifetime(m *dns.Msg) time.Duration {
	life, found := maxCacheTTL, len(m.Answer) > 0
	for _, rr := range m.Answer {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok && len(m.Answer) == 0 {
			found = true
			life = min(life, time.Duration(min(soa.Minttl, soa.Hdr.Ttl))*time.Second)
		}
	}
	if !found {
		return 0
	}
	return life
}
