package isolation

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
)

func to(prefix, protocol string, first, last uint16) Destination {
	return Destination{netip.MustParsePrefix(prefix), protocol, first, last}
}

func TestRestrict(t *testing.T) {
	s := newSite(t)
	s.publish()
	reach := func(network, to string) probe { return probe{who: "a1", from: s.a1, network: network, to: to} }
	outside := []probe{
		reach("tcp", "203.0.113.7:7000"), reach("tcp", "203.0.113.7:8000"), reach("tcp", "203.0.113.8:7000"),
		reach("udp", "203.0.113.7:7000"), reach("udp", "203.0.113.8:8000"), reach("icmp", "203.0.113.7"),
		reach("tcp", "192.0.2.2:7000"),
	}
	always := []probe{
		reach("tcp", atA2),
		{who: "host", from: s.host, network: "tcp", to: "10.213.0.2:7000"},
		{who: "outside", from: s.outside, network: "udp", to: "10.213.0.2:7000"},
		{who: "the other sandbox", from: s.b, network: "tcp", to: "203.0.113.8:8000"},
	}
	never := []probe{
		reach("tcp", atB), reach("tcp", "10.213.0.1:7000"), reach("udp", "192.0.2.1:7000"), reach("tcp", "192.0.2.1:8080"),
	}
	r := s.rules()
	s.check(r.Install())
	s.open(append(outside, always...)...)
	for _, test := range []struct {
		name  string
		allow []Destination
		open  []int // of outside
	}{
		{"nowhere", nil, nil},
		{"one address", []Destination{to("203.0.113.7/32", "", 0, 0)}, []int{0, 1, 3, 5}},
		{"a range, with host bits", []Destination{to("203.0.113.9/24", "", 0, 0)}, []int{0, 1, 2, 3, 4, 5}},
		{"one port", []Destination{to("203.0.113.0/24", "tcp", 7000, 7000)}, []int{0, 2}},
		{"ports", []Destination{to("203.0.113.0/24", "tcp", 7000, 8000)}, []int{0, 1, 2}},
		{"ports that end too early", []Destination{to("203.0.113.0/24", "tcp", 1, 6999)}, nil},
		{"ports that begin too late", []Destination{to("203.0.113.0/24", "tcp", 8001, 65535)}, nil},
		{"a protocol", []Destination{to("0.0.0.0/0", "udp", 0, 0)}, []int{3, 4}},
		{"several", []Destination{to("203.0.113.8/32", "udp", 8000, 8000), to("192.0.2.2/32", "tcp", 7000, 7000)}, []int{4, 6}},
		{"everywhere", []Destination{to("0.0.0.0/0", "", 0, 0)}, []int{0, 1, 2, 3, 4, 5, 6}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &site{t, s.host, s.a1, s.a2, s.b, s.outside}
			s.check(r.Restrict(netip.MustParsePrefix(subnetA), test.allow))
			s.check(r.Verify())
			var permitted, forbidden []probe
			for i, p := range outside {
				if len(test.open) > 0 && test.open[0] == i {
					permitted, test.open = append(permitted, p), test.open[1:]
				} else {
					forbidden = append(forbidden, p)
				}
			}
			s.open(append(permitted, always...)...)
			s.closed(append(forbidden, never...)...)
		})
	}
	s.check(r.Restrict(netip.MustParsePrefix(subnetA), nil))
	for range 2 {
		s.check(r.Release(netip.MustParsePrefix(subnetA)))
	}
	s.check(r.Verify())
	s.open(append(outside, always...)...)
	s.closed(never...)
}

// TestRestrictCutsOpenConnections, but only those that the sandbox opened to what is no longer allowed.
func TestRestrictCutsOpenConnections(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	var conns []net.Conn
	for _, p := range []probe{
		{from: s.outside, network: "tcp", to: "10.213.0.2:7000"},
		{from: s.a1, network: "tcp", to: "203.0.113.8:7000"},
		{from: s.a1, network: "tcp", to: "203.0.113.7:7000"},
	} {
		conn, err := p.dial(patience)
		s.check(err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	s.check(r.Restrict(netip.MustParsePrefix(subnetA), []Destination{to("203.0.113.8/32", "tcp", 7000, 7000)}))
	for _, conn := range conns[:2] {
		conn.SetDeadline(time.Now().Add(patience))
		s.check(exchange(conn, "still here", "still here"))
	}
	conns[2].SetDeadline(time.Now().Add(silence))
	if err := exchange(conns[2], "still here", "still here"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what is no longer allowed: %v", err)
	}
}

func TestRestricted(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	listed := func(want ...string) {
		t.Helper()
		again := s.rules() // as after a restart
		got, err := again.Restricted()
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("restricted: %v, %v; want %v", got, err, want)
		}
	}
	first, second, third := "10.213.0.0/28", "10.213.0.16/28", "10.213.0.32/27"
	listed()
	s.check(r.Release(netip.MustParsePrefix(first)))
	if err := r.Restrict(netip.MustParsePrefix(first), nil); !errors.Is(err, ErrAltered) {
		t.Errorf("restrict without a table: %v", err)
	}
	s.check(r.Install())
	listed()
	for _, subnet := range []string{third, first, second, first} {
		s.check(r.Restrict(netip.MustParsePrefix(subnet), nil))
	}
	listed(first, second, third)
	s.check(r.Install())
	listed(first, second, third)
	s.check(r.Release(netip.MustParsePrefix(second)))
	s.check(r.Release(netip.MustParsePrefix(second)))
	listed(first, third)
	s.check(r.Verify())
	s.check(r.Remove())
	listed()
}

func TestManyAtOnce(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	var sandboxes sync.WaitGroup
	for n := range byte(16) {
		sandboxes.Go(func() {
			subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, 7, n << 4}), 28)
			for range 5 {
				if err := errors.Join(r.Restrict(subnet, nil), r.Release(subnet), r.Restrict(subnet, []Destination{to("0.0.0.0/0", "tcp", 443, 443)})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sandboxes.Wait()
	s.check(r.Verify())
	if got, err := r.Restricted(); len(got) != 16 || err != nil {
		t.Errorf("restricted: %v, %v", got, err)
	}
}

func TestBadRestrictions(t *testing.T) {
	r := Open("x", pool, 28)
	for _, subnet := range []netip.Prefix{
		{}, netip.MustParsePrefix("10.214.0.0/28"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.213.0.1/28"), netip.MustParsePrefix("fd00::/64"),
	} {
		if err := r.Restrict(subnet, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("restrict %s: %v", subnet, err)
		}
	}
	if err := Open("x", netip.MustParsePrefix("10.0.0.0/8"), 28).Restrict(netip.MustParsePrefix("10.0.0.0/7"), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("restrict more than the pool: %v", err)
	}
	if err := r.Release(netip.MustParsePrefix("10.213.0.1/28")); !errors.Is(err, ErrInvalid) {
		t.Errorf("release of half a subnet: %v", err)
	}
	for name, d := range map[string]Destination{
		"no range": {}, "IPv6": to("::/0", "", 0, 0), "protocol": to("0.0.0.0/0", "sctp", 0, 0),
		"ports of nothing": to("0.0.0.0/0", "", 1, 2), "backwards": to("0.0.0.0/0", "tcp", 2, 1), "no last": to("0.0.0.0/0", "tcp", 2, 0),
	} {
		if err := r.Restrict(netip.MustParsePrefix(subnetA), []Destination{d}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Restrict(netip.MustParsePrefix(subnetA), make([]Destination, MaxDestinations+1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
}

func TestMostDestinations(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	var allow []Destination
	for n := range MaxDestinations - 1 {
		allow = append(allow, to(fmt.Sprintf("198.18.%d.%d/32", n>>8, n&255), "tcp", 1, 65535))
	}
	allow = append(allow, to("203.0.113.7/32", "tcp", 7000, 7000))
	s.check(r.Restrict(netip.MustParsePrefix(subnetA), allow))
	s.check(r.Restrict(netip.MustParsePrefix(subnetA), allow))
	s.check(r.Verify())
	s.open(probe{who: "the last destination", from: s.a1, network: "tcp", to: "203.0.113.7:7000"})
	s.closed(probe{who: "none", from: s.a1, network: "tcp", to: "203.0.113.8:7000"})
}
