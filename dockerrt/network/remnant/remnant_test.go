package remnant_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/network/remnant"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

const bridge = "abtest"

var subnet = netip.MustParsePrefix("10.213.0.0/28")

// onHost runs test in a network namespace of its own that has a bridge like that of a sandbox.
func onHost(t *testing.T, test func(link netlink.Link)) {
	t.Helper()
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: a host is a network namespace")
	}
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		ns, err := netns.New()
		if err != nil {
			failed <- err
			return
		}
		defer ns.Close()
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		address, err := netlink.ParseAddr("10.213.0.1/28")
		if err = errors.Join(err, netlink.LinkAdd(link), netlink.AddrAdd(link, address), netlink.LinkSetUp(link)); err == nil {
			test(link)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func connection(from, to string) *netlink.ConntrackFlow {
	tuple := func(from, to string) netlink.IPTuple {
		return netlink.IPTuple{SrcIP: net.ParseIP(from).To4(), DstIP: net.ParseIP(to).To4(), Protocol: unix.IPPROTO_UDP, SrcPort: 1000, DstPort: 2000}
	}
	reverse := tuple(to, from)
	reverse.SrcPort, reverse.DstPort = 2000, 1000
	return &netlink.ConntrackFlow{FamilyType: unix.AF_INET, Forward: tuple(from, to), Reverse: reverse, TimeOut: 600}
}

// TestClear: what is known of the subnet goes, whichever side of it a connection has, and nothing else does.
func TestClear(t *testing.T) {
	onHost(t, func(link netlink.Link) {
		for _, c := range [][2]string{{"10.213.0.2", "192.0.2.7"}, {"192.0.2.7", "10.213.0.3"}, {"10.213.0.18", "192.0.2.7"}} {
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, connection(c[0], c[1])); err != nil {
				t.Errorf("connection %v: %v", c, err)
				return
			}
		}
		hardware, _ := net.ParseMAC("02:42:0a:d5:00:02")
		if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: unix.NUD_REACHABLE, IP: net.IPv4(10, 213, 0, 2), HardwareAddr: hardware}); err != nil {
			t.Errorf("neighbour: %v", err)
		}
		if err := remnant.Clear(bridge, subnet); err != nil {
			t.Error(err)
		}
		left, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil || len(left) != 1 || !left[0].Forward.SrcIP.Equal(net.IPv4(10, 213, 0, 18)) {
			t.Errorf("connections left: %v, %v; want that of another subnet alone", left, err)
		}
		known, err := netlink.NeighList(link.Attrs().Index, unix.AF_INET)
		for _, n := range known {
			if n.IP.Equal(net.IPv4(10, 213, 0, 2)) && len(n.HardwareAddr) > 0 {
				t.Errorf("neighbour left: %v", n)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// TestLeft: a bridge that is not as it was made is nobody's to give away.
func TestLeft(t *testing.T) {
	for name, alter := range map[string]func(link netlink.Link) error{
		"somebody is on it": func(link netlink.Link) error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "somebody", MasterIndex: link.Attrs().Index}, PeerName: "there"})
		},
		"another address": func(link netlink.Link) error {
			address, err := netlink.ParseAddr("192.0.2.1/24")
			return errors.Join(err, netlink.AddrAdd(link, address))
		},
		"a second address": func(link netlink.Link) error {
			address, err := netlink.ParseAddr("10.213.0.9/28")
			return errors.Join(err, netlink.AddrAdd(link, address))
		},
		"no address": func(link netlink.Link) error {
			address, err := netlink.ParseAddr("10.213.0.1/28")
			return errors.Join(err, netlink.AddrDel(link, address))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(link netlink.Link) {
				if err := alter(link); err != nil {
					t.Error(err)
				} else if err := remnant.Clear(bridge, subnet); !errors.Is(err, remnant.ErrLeft) {
					t.Errorf("it was cleared: %v", err)
				}
			})
		})
	}
	t.Run("gone", func(t *testing.T) {
		onHost(t, func(link netlink.Link) {
			if err := errors.Join(netlink.LinkDel(link)); err != nil {
				t.Error(err)
			} else if err := remnant.Clear(bridge, subnet); err == nil {
				t.Error("a bridge that is gone was cleared")
			}
		})
	})
}
