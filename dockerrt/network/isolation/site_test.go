package isolation

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// site is a host with sandboxes and an outside, each in a network namespace of its own:
//
//	a1 10.213.0.2, a2 10.213.0.3   on bridge bridgeA, gateway 10.213.0.1
//	b                              on bridge bridgeB: one address of each subnet that differs from a's in one bit
//	outside 192.0.2.2              is 45.0.113.7 and .8 and one address of each range of notPublic, on eth0 of the host,
//	                               which is 192.0.2.1 and 198.51.100.1
//
// In IPv6 the host is fd00:a::1, a1 fd00:a::2, b fd00:b::2 and outside 2a00::7. Everybody echoes TCP and UDP on ports 7000
// and 8000.
type site struct {
	*testing.T
	host, a1, a2, b, outside netns.NsHandle
}

const (
	atA2 = "10.213.0.3:7000"
	atB  = "10.213.0.18:7000"
)

var (
	pool             = netip.MustParsePrefix("10.213.0.0/16")
	ofTheTest        = Open("instance-of-the-test", pool)
	bridgeA, bridgeB = ofTheTest.Bridge(), ofTheTest.Bridge()
	internet         = Reach{Allow: []Destination{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}}
	private          = Reach{Allow: internet.Allow, Private: true}
	// notPublic are addresses that somebody outside may have, of every special range that a host routes at all.
	notPublic = []string{
		"10.99.0.7", "100.64.0.7", "169.254.169.254", "172.16.0.7", "172.31.255.7", "192.0.0.7", "192.0.2.7", "192.88.99.7",
		"192.168.0.7", "198.18.0.7", "198.19.255.7", "198.51.100.7", "203.0.113.7",
	}
)

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: hosts and sandboxes are network namespaces")
	}
	s := &site{T: t}
	for _, ns := range []*netns.NsHandle{&s.host, &s.a1, &s.a2, &s.b, &s.outside} {
		s.thread(0, func() (err error) { *ns, err = netns.New(); return })
		t.Cleanup(func() { ns.Close() })
	}
	s.thread(s.host, func() error {
		// Without the kernel's own look at sources, which a host may or may not have.
		for name, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv6/conf/all/forwarding": "1",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
	s.bridge(bridgeA, "10.213.0.1/28", "fd00:a::1/64")
	s.wire(bridgeA, s.a1, "10.213.0.1", "10.213.0.2/28", "fd00:a::2/64")
	s.wire(bridgeA, s.a2, "10.213.0.1", "10.213.0.3/28")
	gateways, addresses := []string{"fd00:b::1/64"}, []string{"fd00:b::2/64"}
	for n := range 12 {
		gateways, addresses = append(gateways, differing(n, 1)+"/28"), append(addresses, differing(n, 2)+"/28")
	}
	s.bridge(bridgeB, gateways...)
	s.wire(bridgeB, s.b, differing(0, 1), addresses...)
	s.bridge("eth0", "192.0.2.1/24", "198.51.100.1/32", "2a00::1/64")
	outside := []string{"192.0.2.2/24", "45.0.113.7/32", "45.0.113.8/32", "2a00::7/64"}
	for _, address := range notPublic {
		outside = append(outside, address+"/32")
	}
	s.wire("eth0", s.outside, "192.0.2.1", outside...)
	s.thread(s.host, func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.2")})
	})
	for ns, gateway := range map[netns.NsHandle]string{s.a1: "fd00:a::1", s.b: "fd00:b::1", s.outside: "2a00::1"} {
		s.thread(ns, func() error {
			_, all, _ := net.ParseCIDR("::/0")
			return netlink.RouteAdd(&netlink.Route{Dst: all, Gw: net.ParseIP(gateway)})
		})
	}
	for _, ns := range []netns.NsHandle{s.host, s.a1, s.a2, s.b, s.outside} {
		s.echo(ns)
	}
	// A wire loses what is sent right after it was plugged in; TCP tries again.
	for ns, gateway := range map[netns.NsHandle]string{s.a1: "10.213.0.1", s.a2: "10.213.0.1", s.b: differing(0, 1), s.outside: "192.0.2.1"} {
		s.open(probe{who: "new wire", from: ns, network: "tcp", to: gateway + ":7000"})
	}
	return s
}

// differing is an address of the subnet whose bit n, counted from the subnet's end, differs from a's.
func differing(n int, last byte) string {
	word := uint32(16) << n
	return netip.AddrFrom4([4]byte{10, 213, byte(word >> 8), byte(word) | last}).String()
}

// thread runs f on a thread of its own in the namespace; the thread ends with it.
func (s *site) thread(ns netns.NsHandle, f func() error) {
	s.Helper()
	if err := on(ns, f); err != nil {
		s.Fatal(err)
	}
}

func on(ns netns.NsHandle, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		if ns != 0 {
			if err := netns.Set(ns); err != nil {
				done <- err
				return
			}
		}
		done <- f()
	}()
	return <-done
}

func (s *site) bridge(name string, addresses ...string) {
	s.Helper()
	s.thread(s.host, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		return errors.Join(netlink.LinkAdd(bridge), raise(name, addresses...), raise("lo"))
	})
}

// wire connects the namespace to the bridge by its eth0.
func (s *site) wire(bridge string, ns netns.NsHandle, gateway string, addresses ...string) {
	s.Helper()
	s.thread(s.host, func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		port := fmt.Sprintf("port%d", ns)
		return errors.Join(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: master.Attrs().Index},
			PeerName:  "eth0", PeerNamespace: netlink.NsFd(ns),
		}), raise(port))
	})
	s.thread(ns, func() error {
		return errors.Join(raise("lo"), raise("eth0", addresses...), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}))
	})
}

func raise(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("%s on %s: %w", text, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// echo serves on every address of the namespace until the test ends.
func (s *site) echo(ns netns.NsHandle) {
	s.Helper()
	var addresses []net.Addr
	s.thread(ns, func() (err error) { addresses, err = net.InterfaceAddrs(); return })
	for _, address := range addresses {
		ip := address.(*net.IPNet).IP
		if ip.IsLinkLocalUnicast() && ip.To4() == nil { // still being made
			continue
		}
		for _, port := range []string{"7000", "8000"} {
			at := net.JoinHostPort(ip.String(), port)
			s.accept(ns, at)
			s.answer(ns, at)
		}
	}
}

func (s *site) accept(ns netns.NsHandle, at string) {
	s.Helper()
	var listener net.Listener
	s.thread(ns, func() (err error) { listener, err = net.Listen("tcp", at); return })
	var serving sync.WaitGroup
	closing := make(chan struct{})
	s.Cleanup(func() {
		close(closing) // peers may be cut off and never say goodbye
		listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { io.Copy(conn, conn); conn.Close() })
			serving.Go(func() { <-closing; conn.Close() })
		}
	})
}

func (s *site) answer(ns netns.NsHandle, at string) {
	s.Helper()
	var packets net.PacketConn
	s.thread(ns, func() (err error) { packets, err = net.ListenPacket("udp", at); return })
	var serving sync.WaitGroup
	s.Cleanup(func() { packets.Close(); serving.Wait() })
	serving.Go(func() {
		var buffer [64]byte
		for {
			n, from, err := packets.ReadFrom(buffer[:])
			if err != nil {
				return
			}
			packets.WriteTo(buffer[:n], from)
		}
	})
}

// publish sends ports of the host to others, as Docker does: tcp 8080 and udp 8090 to 7000 and 9000 of b, and tcp 8070,
// for a container that is no sandbox, to 7000 outside.
func (s *site) publish() {
	s.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
	s.check(err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
	c := conn.AddChain(&nftables.Chain{Table: table, Name: "PREROUTING", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	forward := func(number byte, port uint16, to string) {
		target := netip.MustParseAddrPort(to)
		conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: rule(local, protocol(number), ports(port, port), []expr.Any{
			&expr.Immediate{Register: 1, Data: target.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(target.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		})})
	}
	forward(unix.IPPROTO_TCP, 8080, atB)
	forward(unix.IPPROTO_UDP, 8090, "10.213.0.18:9000")
	forward(unix.IPPROTO_TCP, 8070, "45.0.113.7:7000")
	s.check(conn.Flush())
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// rules are those of the site's host, not installed yet.
func (s *site) rules() *Rules {
	r := Open("instance-of-the-test", pool)
	r.netns = int(s.host)
	return r
}

// installed are rules of which both sandboxes may reach what is public.
func (s *site) installed() *Rules {
	s.Helper()
	r := s.rules()
	s.check(errors.Join(r.Install(), r.Admit(bridgeA, internet), r.Admit(bridgeB, internet)))
	return r
}
