package isolation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func TestHostIsClosedToSandboxes(t *testing.T) {
	s := newSite(t)
	s.publish()
	var forbidden []probe
	for name, address := range map[string]string{
		"own gateway": "10.213.0.1", "other gateway": differing(0, 1), "address on a wire": "192.0.2.1", "another address": "198.51.100.1",
	} {
		forbidden = append(forbidden,
			probe{who: name, from: s.a1, network: "tcp", to: address + ":7000"},
			probe{who: name, from: s.a1, network: "udp", to: address + ":7000"},
			probe{who: name, from: s.a1, network: "icmp", to: address},
			probe{who: name + ", published port of a sandbox", from: s.a1, network: "tcp", to: address + ":8080"},
			probe{who: name + ", published port", from: s.a1, network: "tcp", to: address + ":8070"})
	}
	permitted := []probe{
		{who: "host to sandbox", from: s.host, network: "tcp", to: atA2},
		{who: "host to sandbox", from: s.host, network: "udp", to: atB},
		{who: "host to sandbox", from: s.host, network: "icmp", to: "10.213.0.2"},
		{who: "host to itself by a gateway address", from: s.host, network: "tcp", to: "10.213.0.1:7000"},
		{who: "outside to published port", from: s.outside, network: "tcp", to: "192.0.2.1:8080"},
		{who: "outside to host", from: s.outside, network: "tcp", to: "192.0.2.1:7000"},
		{who: "sandbox to outside", from: s.a1, network: "tcp", to: "45.0.113.7:7000"},
		{who: "sandbox to outside", from: s.a1, network: "icmp", to: "45.0.113.7"},
	}
	s.open(forbidden...)
	s.open(permitted...)
	r := s.installed()
	s.closed(forbidden...)
	s.open(permitted...)
	s.silent(r, once,
		flow{"gateway", s.a1, "", "10.213.0.1:9000", s.host, "10.213.0.1:9000"},
		flow{"published port", s.a1, "", "192.0.2.1:8090", s.b, "10.213.0.18:9000"})
}

func TestSubnetsAreClosedToEachOther(t *testing.T) {
	s := newSite(t)
	forbidden := []probe{
		{who: "a1", from: s.a1, network: "udp", to: atB},
		{who: "a1", from: s.a1, network: "tcp", to: atB},
		{who: "a1", from: s.a1, network: "icmp", to: "10.213.0.18"},
		{who: "b", from: s.b, network: "tcp", to: atA2},
	}
	inside := []probe{
		{who: "a1", from: s.a1, network: "tcp", to: atA2},
		{who: "a1", from: s.a1, network: "udp", to: atA2},
		{who: "a2", from: s.a2, network: "icmp", to: "10.213.0.2"},
	}
	s.open(append(forbidden, inside...)...)
	r := s.rules()
	s.check(r.Install())
	s.closed(forbidden...)
	s.open(inside...)
	s.check(r.Admit(bridgeA, private))
	s.check(r.Admit(bridgeB, Reach{Allow: append([]Destination{{Prefix: pool}}, internet.Allow...)}))
	s.closed(forbidden...)
	s.open(inside...)
	var flows []flow
	for bit := range 12 {
		there := differing(bit, 2)
		flows = append(flows,
			flow{"there", s.a1, "", there + ":9000", s.b, there + ":9000"},
			flow{"back", s.b, there, fmt.Sprintf("10.213.0.3:%d", 9000+bit), s.a2, fmt.Sprintf("10.213.0.3:%d", 9000+bit)})
	}
	s.silent(r, once, flows...)
}

// TestBroadcasts: they are for the containers of the subnet, not for the host.
func TestBroadcasts(t *testing.T) {
	s := newSite(t)
	var conn net.PacketConn
	s.thread(s.a1, func() (err error) { conn, err = net.ListenPacket("udp4", ":0"); return })
	defer conn.Close()
	s.answer(s.host, "10.213.0.15:9000")
	s.answer(s.a2, "10.213.0.15:9000")
	answers := func(count int, within time.Duration) map[string]bool {
		_, err := conn.WriteTo([]byte("ping"), &net.UDPAddr{IP: net.IPv4(10, 213, 0, 15), Port: 9000})
		s.check(err)
		conn.SetDeadline(time.Now().Add(within))
		from := map[string]bool{}
		for len(from) < count {
			_, address, err := conn.ReadFrom(make([]byte, 64))
			if err != nil {
				break
			}
			from[address.String()] = true
		}
		return from
	}
	if got := answers(2, patience); !got["10.213.0.1:9000"] || !got["10.213.0.3:9000"] {
		t.Fatalf("without rules %v answer", got)
	}
	r := s.installed()
	s.check(r.Admit(bridgeA, Reach{}))
	if got := answers(2, silence); len(got) != 1 || !got["10.213.0.3:9000"] {
		t.Errorf("with rules %v answer", got)
	}
}

// TestInstallLeavesNoGap: what is forbidden does not get through while the rules are written again, and what is open
// stays connected.
func TestInstallLeavesNoGap(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	s.check(r.Admit(bridgeA, Reach{Allow: []Destination{{Prefix: netip.MustParsePrefix("45.0.113.7/32")}}}))
	var conns []net.Conn
	for _, p := range []probe{
		{from: s.host, network: "tcp", to: "10.213.0.2:7000"},
		{from: s.outside, network: "tcp", to: "10.213.0.2:7000"},
		{from: s.a1, network: "tcp", to: "45.0.113.7:7000"},
	} {
		conn, err := p.dial(patience)
		s.check(err)
		defer conn.Close()
		conns = append(conns, conn)
	}

	packets := 0
	flood := func(senders []net.Conn) {
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for range 50 {
				if err := r.Install(); err != nil {
					t.Error(err)
				}
				for _, conn := range conns {
					conn.SetDeadline(time.Now().Add(patience))
					if err := exchange(conn, "still here", "still here"); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		for {
			select {
			case <-stop:
				return
			default:
				once(senders)
				packets++
			}
		}
	}
	s.silent(r, flood,
		flow{"host", s.a1, "", "10.213.0.1:9000", s.host, "10.213.0.1:9000"},
		flow{"neighbour", s.a1, "", "10.213.0.18:9000", s.b, "10.213.0.18:9000"},
		flow{"outside", s.a1, "", "45.0.113.8:9000", s.outside, "45.0.113.8:9000"})
	t.Logf("%d packets to each of the forbidden", packets)
}

func TestRemove(t *testing.T) {
	s := newSite(t)
	s.publish()
	r, other := s.rules(), s.rules()
	other.table = Open("another instance", pool).table
	s.check(other.Install())
	for range 2 {
		s.check(r.Install())
	}
	s.check(r.Admit(bridgeA, internet))
	s.check(r.Admit(bridgeB, Reach{}))
	if got := s.tables(); fmt.Sprint(got) != fmt.Sprint([]string{"nat", other.table.Name, r.table.Name}) {
		t.Errorf("installed: %v", got)
	}
	for range 2 {
		s.check(r.Remove())
	}
	if got := s.tables(); fmt.Sprint(got) != fmt.Sprint([]string{"nat", other.table.Name}) {
		t.Errorf("removed: %v", got)
	}
	s.check(other.Verify())
	s.check(other.Remove())
	s.open(probe{who: "removed", from: s.a1, network: "tcp", to: atB})
}

func (s *site) tables() []string {
	s.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
	s.check(err)
	tables, err := conn.ListTables()
	s.check(err)
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return names
}

func TestTableNames(t *testing.T) {
	one, again, two := Open("one", pool), Open("one", netip.MustParsePrefix("10.0.0.0/8")), Open("two", pool)
	if name := one.table.Name; name != again.table.Name || name == two.table.Name {
		t.Errorf("%s does not stand for its instance", name)
	}
	bridge := one.Bridge()
	if !again.Holds(bridge) || two.Holds(bridge) || bridge == one.Bridge() || len(bridge) >= unix.IFNAMSIZ {
		t.Errorf("%s does not stand for a bridge of its instance", bridge)
	}
}

func TestBadPools(t *testing.T) {
	for _, r := range []*Rules{
		Open("x", netip.Prefix{}), Open("x", netip.MustParsePrefix("fd00::/64")), Open("x", netip.MustParsePrefix("0.0.0.0/0")),
	} {
		if err := r.Install(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", r.pool, err)
		}
	}
}

func TestNotPermitted(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	r.netns = 0 // the thread is there already
	for name, call := range map[string]func() error{
		"Install": r.Install, "Verify": r.Verify, "Remove": r.Remove,
		"Admit": func() error { return r.Admit(bridgeA, internet) },
		"Release": func() error {
			_ = r.Admit(bridgeA, internet) // refused, too
			return r.Release(bridgeA)
		},
		"Watch": func() error { return r.Watch(t.Context(), func() {}) },
	} {
		err := on(s.host, func() error {
			const nobody = 65534
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
				return errno
			}
			return call()
		})
		if !errors.Is(err, ErrNotPermitted) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := s.rules()
	s.check(errors.Join(again.Install(), again.Verify()))
}

func TestErrorsOfTheKernel(t *testing.T) {
	r := Open("x", pool)
	for errno, want := range map[syscall.Errno]error{
		syscall.EPERM: ErrNotPermitted, syscall.EOPNOTSUPP: ErrUnsupported, syscall.EPROTONOSUPPORT: ErrUnsupported,
		syscall.ENOENT: ErrAltered, syscall.ENOBUFS: syscall.ENOBUFS,
	} {
		if err := r.explain("install", fmt.Errorf("conn.Receive: %w", errors.Join(errno, os.ErrDeadlineExceeded))); !errors.Is(err, want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestWatch: every change of the table is told, whoever makes it.
func TestWatch(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- r.Watch(ctx, func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	}()
	hears := func(what string, change func() error) {
		t.Helper()
		for {
			s.check(change())
			select {
			case <-told:
				return
			case err := <-ended:
				t.Fatalf("%s: %v", what, err)
			case <-time.After(silence): // it has only begun
			}
		}
	}
	hears("install", s.rules().Install)
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
	s.check(err)
	hears("rule", func() error {
		conn.InsertRule(&nftables.Rule{Table: r.table, Chain: r.chain(hostChain), Exprs: accept})
		return conn.Flush()
	})
	hears("element", func() error {
		s.check(conn.SetAddElements(r.reaches(), []nftables.SetElement{{Key: ifname("abother"), VerdictData: &expr.Verdict{Kind: expr.VerdictAccept}}}))
		return conn.Flush()
	})
	hears("all", func() error {
		s.check(s.rules().Install())
		conn.FlushRuleset()
		return conn.Flush()
	})
	cancel()
	s.check(<-ended)
}

// TestHold: it mends what somebody altered and says so, and says nothing of what it changes itself.
func TestHold(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	hold := func(r *Rules, want error, all map[string]Reach) {
		t.Helper()
		altered, err := r.Hold(all)
		s.check(errors.Join(err, r.Verify()))
		if !errors.Is(altered, want) || (want == nil) != (altered == nil) {
			t.Errorf("altered: %v; want %v", altered, want)
		}
	}
	hold(r, nil, nil)
	s.closed(probe{who: "nobody admitted it", from: s.a1, network: "tcp", to: "45.0.113.7:7000"})
	both := map[string]Reach{bridgeA: internet, bridgeB: {}}
	hold(r, nil, both)
	hold(r, nil, map[string]Reach{bridgeB: private})
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
	s.check(err)
	conn.FlushChain(r.chain(hostChain))
	s.check(conn.Flush())
	hold(r, ErrAltered, nil)
	conn.FlushRuleset()
	s.check(conn.Flush())
	hold(r, ErrGone, both)
	hold(s.rules(), nil, both) // another process
	conn.FlushRuleset()
	s.check(conn.Flush())
	hold(s.rules(), ErrGone, both)
	s.open(probe{who: "admitted", from: s.a1, network: "tcp", to: "45.0.113.7:7000"})
	s.closed(probe{who: "admitted", from: s.a1, network: "tcp", to: "192.168.0.7:7000"})
	if _, err := r.Hold(map[string]Reach{"eth0": internet}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a bridge of others: %v", err)
	}
	s.check(r.Remove())
	hold(r, nil, nil)
}
