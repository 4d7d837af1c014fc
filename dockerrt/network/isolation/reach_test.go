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

	"github.com/vishvananda/netns"
)

func to(prefix, protocol string, first, last uint16) Destination {
	return Destination{netip.MustParsePrefix(prefix), protocol, first, last}
}

func TestReach(t *testing.T) {
	s := newSite(t)
	s.publish()
	reach := func(network, to string) probe { return probe{who: "a1", from: s.a1, network: network, to: to} }
	outside := []probe{
		reach("tcp", "45.0.113.7:7000"), reach("tcp", "45.0.113.7:8000"), reach("tcp", "45.0.113.8:7000"),
		reach("udp", "45.0.113.7:7000"), reach("udp", "45.0.113.8:8000"), reach("icmp", "45.0.113.7"),
		reach("tcp", "192.168.0.7:7000"), reach("udp", "169.254.169.254:8000"),
	}
	always := []probe{
		reach("tcp", atA2),
		{who: "host", from: s.host, network: "tcp", to: "10.213.0.2:7000"},
		{who: "outside", from: s.outside, network: "udp", to: "10.213.0.2:7000"},
		{who: "the other sandbox", from: s.b, network: "tcp", to: "45.0.113.8:8000"},
	}
	never := []probe{
		reach("tcp", atB), reach("tcp", "10.213.0.1:7000"), reach("udp", "192.0.2.1:7000"), reach("tcp", "192.0.2.1:8080"),
	}
	s.open(append(outside, always...)...)
	r := s.rules()
	s.check(errors.Join(r.Install(), r.Admit(bridgeB, internet)))
	for _, test := range []struct {
		name    string
		private bool
		allow   []Destination
		open    []int // of outside
	}{
		{"nowhere", false, nil, nil},
		{"one address", false, []Destination{to("45.0.113.7/32", "", 0, 0)}, []int{0, 1, 3, 5}},
		{"a range, with host bits", false, []Destination{to("45.0.113.9/24", "", 0, 0)}, []int{0, 1, 2, 3, 4, 5}},
		{"one port", false, []Destination{to("45.0.113.0/24", "tcp", 7000, 7000)}, []int{0, 2}},
		{"ports", false, []Destination{to("45.0.113.0/24", "tcp", 7000, 8000)}, []int{0, 1, 2}},
		{"ports that end too early", false, []Destination{to("45.0.113.0/24", "tcp", 1, 6999)}, nil},
		{"ports that begin too late", false, []Destination{to("45.0.113.0/24", "tcp", 8001, 65535)}, nil},
		{"a protocol", false, []Destination{to("0.0.0.0/0", "udp", 0, 0)}, []int{3, 4}},
		{"several", false, []Destination{to("45.0.113.8/32", "udp", 8000, 8000), to("192.168.0.7/32", "tcp", 7000, 7000)}, []int{4, 6}},
		{"a special range", false, []Destination{to("192.168.0.0/16", "", 0, 0)}, []int{6}},
		{"what is around it", false, []Destination{to("192.0.0.0/8", "", 0, 0)}, nil},
		{"everywhere", false, internet.Allow, []int{0, 1, 2, 3, 4, 5}},
		{"everywhere, and one that is special", false, []Destination{to("0.0.0.0/0", "", 0, 0), to("192.168.0.0/24", "", 0, 0)}, []int{0, 1, 2, 3, 4, 5, 6}},
		{"everywhere, and all that is special", true, internet.Allow, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"a protocol, special ranges too", true, []Destination{to("0.0.0.0/0", "udp", 0, 0)}, []int{3, 4, 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &site{t, s.host, s.a1, s.a2, s.b, s.outside}
			s.check(r.Admit(bridgeA, Reach{test.allow, test.private}))
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
	s.check(r.Admit(bridgeA, internet)) // what bridgeB reaches too
	for range 2 {
		s.check(r.Release(bridgeA))
	}
	s.check(r.Verify())
	s.open(always...)
	s.closed(append(outside, never...)...) // a bridge that nobody admitted
}

// TestWhatIsNotPublic: of 0.0.0.0/0 no special range is a part.
func TestWhatIsNotPublic(t *testing.T) {
	s := newSite(t)
	var probes []probe
	for _, address := range append(notPublic, "192.0.2.2") {
		probes = append(probes,
			probe{who: "a1", from: s.a1, network: "tcp", to: address + ":7000"},
			probe{who: "a1", from: s.a1, network: "udp", to: address + ":7000"},
			probe{who: "a1", from: s.a1, network: "icmp", to: address})
	}
	s.open(probes...)
	r := s.installed()
	s.closed(probes...)
	s.open(probe{who: "public", from: s.a1, network: "tcp", to: "45.0.113.7:7000"})
	s.check(r.Admit(bridgeA, private))
	s.open(probes...)
}

// TestIPv6: nothing of it is open, on the bridge's link-local address neither, whatever a sandbox may reach.
func TestIPv6(t *testing.T) {
	s := newSite(t)
	// By number: the library keeps the names of one namespace for all.
	linkLocal := func(ns netns.NsHandle, name string) (text string) {
		s.thread(ns, func() error {
			link, err := net.InterfaceByName(name)
			if err == nil {
				text = fmt.Sprintf("[fe80::1:1%%%d]", link.Index)
			}
			return err
		})
		return text
	}
	s.thread(s.host, func() error { return raise(bridgeA, "fe80::1:1/64") })
	s.thread(s.a1, func() error { return raise("eth0", "fe80::1:2/64") })
	s.accept(s.host, linkLocal(s.host, bridgeA)+":7000")
	var forbidden []probe
	for name, address := range map[string]string{
		"gateway": "[fd00:a::1]", "link-local": linkLocal(s.a1, "eth0"), "other gateway": "[fd00:b::1]", "host": "[2a00::1]",
		"neighbour": "[fd00:b::2]", "outside": "[2a00::7]",
	} {
		forbidden = append(forbidden, probe{who: name, from: s.a1, network: "tcp", to: address + ":7000"})
		if name != "link-local" {
			forbidden = append(forbidden, probe{who: name, from: s.a1, network: "udp", to: address + ":7000"})
		}
	}
	s.open(forbidden...)
	r := s.installed()
	s.check(r.Admit(bridgeA, private))
	s.closed(forbidden...)
	s.open(probe{who: "host", from: s.host, network: "tcp", to: "[2a00::7]:7000"}) // for others it goes on
}

// TestForgedSources: whatever address a sandbox gives itself, the rules hold, and with one that is not its network's it
// reaches nobody.
func TestForgedSources(t *testing.T) {
	s := newSite(t)
	forged := []string{"10.213.0.20", "10.99.3.3", "45.0.113.9", "192.168.77.7"}
	s.thread(s.a1, func() error {
		for _, address := range forged {
			if err := raise("lo", address+"/32"); err != nil {
				return err
			}
		}
		return nil
	})
	r := s.rules()
	s.check(errors.Join(r.Install(), r.Admit(bridgeA, private), r.Admit(bridgeB, private)))
	var flows []flow
	for i, via := range forged {
		at := func(address string) string { return fmt.Sprintf("%s:%d", address, 9000+i) }
		flows = append(flows,
			flow{"public", s.a1, via, at("45.0.113.7"), s.outside, at("45.0.113.7")},
			flow{"private", s.a1, via, at("192.168.0.7"), s.outside, at("192.168.0.7")},
			flow{"neighbour", s.a1, via, at("10.213.0.18"), s.b, at("10.213.0.18")},
			flow{"host", s.a1, via, at("10.213.0.1"), s.host, at("10.213.0.1")})
	}
	s.silent(r, once, flows...)
}

// TestAdmitCutsOpenConnections, but only those that the sandbox opened to what is no longer allowed.
func TestAdmitCutsOpenConnections(t *testing.T) {
	s := newSite(t)
	r := s.installed()
	var conns []net.Conn
	for _, p := range []probe{
		{from: s.outside, network: "tcp", to: "10.213.0.2:7000"},
		{from: s.a1, network: "tcp", to: "45.0.113.8:7000"},
		{from: s.a1, network: "tcp", to: "45.0.113.7:7000"},
	} {
		conn, err := p.dial(patience)
		s.check(err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	s.check(r.Admit(bridgeA, Reach{Allow: []Destination{to("45.0.113.8/32", "tcp", 7000, 7000)}}))
	for _, conn := range conns[:2] {
		conn.SetDeadline(time.Now().Add(patience))
		s.check(exchange(conn, "still here", "still here"))
	}
	conns[2].SetDeadline(time.Now().Add(silence))
	if err := exchange(conns[2], "still here", "still here"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what is no longer allowed: %v", err)
	}
}

// TestAnotherProcess: what an earlier process admitted is gone with the first Install, which does not know of it, and back
// once it is admitted again; the order of the two does not matter.
func TestAnotherProcess(t *testing.T) {
	s := newSite(t)
	s.installed()
	r := s.rules()
	if err := r.Verify(); !errors.Is(err, ErrAltered) {
		t.Errorf("what nobody admitted here: %v", err)
	}
	if err := errors.Join(r.Admit(bridgeA, internet), r.Verify()); !errors.Is(err, ErrAltered) {
		t.Errorf("with one of two: %v", err)
	}
	s.check(errors.Join(r.Install(), r.Verify()))
	s.open(probe{who: "a1", from: s.a1, network: "tcp", to: "45.0.113.7:7000"})
	s.closed(probe{who: "b", from: s.b, network: "tcp", to: "45.0.113.7:7000"})
}

func TestManyAtOnce(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	var sandboxes sync.WaitGroup
	for n := range uint16(16) {
		sandboxes.Go(func() {
			bridge := r.Bridge()
			web := Reach{Allow: []Destination{to("0.0.0.0/0", "tcp", 440+n/2, 450)}}
			for range 5 {
				if err := errors.Join(r.Admit(bridge, Reach{}), r.Release(bridge), r.Admit(bridge, web), r.Verify()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sandboxes.Wait()
	s.check(r.Verify())
	if got := r.Admitted(); len(got) != 16 {
		t.Errorf("admitted: %v", got)
	}
}

func TestBadReaches(t *testing.T) {
	r := Open("x", pool)
	for _, bridge := range []string{"", "eth0", "br-0123456789ab", Open("y", pool).Bridge(), r.Bridge() + "x"} {
		if err := r.Admit(bridge, internet); !errors.Is(err, ErrInvalid) {
			t.Errorf("bridge %q: %v", bridge, err)
		}
	}
	for name, d := range map[string]Destination{
		"no range": {}, "IPv6": to("::/0", "", 0, 0), "protocol": to("0.0.0.0/0", "sctp", 0, 0),
		"ports of nothing": to("0.0.0.0/0", "", 1, 2), "backwards": to("0.0.0.0/0", "tcp", 2, 1), "no last": to("0.0.0.0/0", "tcp", 2, 0),
	} {
		if err := r.Admit(r.Bridge(), Reach{Allow: []Destination{d}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Admit(r.Bridge(), Reach{Allow: make([]Destination, MaxDestinations+1)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
	if got := r.Admitted(); len(got) > 0 {
		t.Errorf("admitted: %v", got)
	}
}

func TestMostDestinations(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	var allow []Destination
	for n := range MaxDestinations - 1 {
		allow = append(allow, to(fmt.Sprintf("44.18.%d.%d/32", n>>8, n&255), "tcp", 1, 65535))
	}
	reach := Reach{Allow: append(allow, to("45.0.113.7/32", "tcp", 7000, 7000))}
	s.check(r.Admit(bridgeA, reach))
	s.check(r.Admit(bridgeA, reach))
	s.check(r.Verify())
	s.open(probe{who: "the last destination", from: s.a1, network: "tcp", to: "45.0.113.7:7000"})
	s.closed(probe{who: "none", from: s.a1, network: "tcp", to: "45.0.113.8:7000"})
}
