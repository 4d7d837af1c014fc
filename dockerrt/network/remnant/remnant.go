// Package remnant takes away what the kernel remembers of who was on a bridge, so that nobody who comes after meets it:
// connections that are tracked, and neighbours. It runs in the network namespace that the bridge is in.
package remnant

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrLeft: the bridge is not as it was made. It may still be somebody's, and must not be given to anybody else.
var ErrLeft = errors.New("remnant: something is left on the bridge")

const (
	// kernelTimeout bounds each answer of the kernel.
	kernelTimeout = 10 * time.Second
	// tries is how often what is tracked is looked at: what came to be between a look and its end is gone with the next.
	tries = 3
	// dumps is how often a list of the kernel is asked for that changes while it is read.
	dumps = 50
)

// whole asks for a list until it was not changed while it was read.
func whole[T any](dump func() (T, error)) (list T, err error) {
	for range dumps {
		if list, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return list, err
}

// Clear forgets the connections and neighbours of a bridge without anybody on it. It fails with ErrLeft where somebody is, where its
// addresses are others than the one of subnet, or where what it took away is there again, and else with the kernel's error.
func Clear(bridge string, subnet netip.Prefix) error {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("remnant: cannot ask the kernel: %w", err)
	}
	defer kernel.Close()
	if err := kernel.SetSocketTimeout(kernelTimeout); err != nil {
		return fmt.Errorf("remnant: cannot ask the kernel: %w", err)
	}
	link, err := kernel.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("remnant: cannot look at bridge %s: %w", bridge, err)
	}
	if err := alone(kernel, link, subnet); err != nil {
		return err
	}
	if err := forgetConnections(kernel, subnet); err != nil {
		return err
	}
	if err := forgetNeighbours(kernel, link, subnet); err != nil {
		return err
	}
	return alone(kernel, link, subnet)
}

// alone fails where an interface is on the bridge, or its addresses are not those that it was made with.
func alone(kernel *netlink.Handle, bridge netlink.Link, subnet netip.Prefix) error {
	links, err := whole(kernel.LinkList)
	if err != nil {
		return fmt.Errorf("remnant: cannot list interfaces: %w", err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex == bridge.Attrs().Index {
			return fmt.Errorf("%w: interface %s is on %s", ErrLeft, link.Attrs().Name, bridge.Attrs().Name)
		}
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return kernel.AddrList(bridge, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("remnant: cannot list the addresses of %s: %w", bridge.Attrs().Name, err)
	}
	for _, address := range addresses {
		if !contains(subnet, address.IP) {
			return fmt.Errorf("%w: %s has the address %s outside of %s", ErrLeft, bridge.Attrs().Name, address.IPNet, subnet)
		}
	}
	if len(addresses) != 1 {
		return fmt.Errorf("%w: %s has %d addresses", ErrLeft, bridge.Attrs().Name, len(addresses))
	}
	return nil
}

// with matches connections in which an address of a subnet has a part, before or after any translation.
type with netip.Prefix

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (subnet with) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	p := netip.Prefix(subnet)
	return contains(p, flow.Forward.SrcIP) || contains(p, flow.Forward.DstIP) || contains(p, flow.Reverse.SrcIP) || contains(p, flow.Reverse.DstIP)
}

func contains(subnet netip.Prefix, ip net.IP) bool {
	address, ok := netip.AddrFromSlice(ip)
	return ok && subnet.Contains(address.Unmap())
}

func forgetConnections(kernel *netlink.Handle, subnet netip.Prefix) error {
	left := uint(0)
	for range tries {
		n, err := whole(func() (uint, error) {
			return kernel.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, with(subnet))
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // one that ended by itself meanwhile
			return fmt.Errorf("remnant: cannot forget the connections of %s: %w", subnet, err)
		}
		if left = n; n == 0 && err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %d connections of %s came to be meanwhile", ErrLeft, left, subnet)
}

// forgetNeighbours takes away whose hardware had which address on the bridge.
func forgetNeighbours(kernel *netlink.Handle, bridge netlink.Link, subnet netip.Prefix) error {
	for _, last := range []bool{false, true} {
		known, err := whole(func() ([]netlink.Neigh, error) { return kernel.NeighList(bridge.Attrs().Index, netlink.FAMILY_V4) })
		if err != nil {
			return fmt.Errorf("remnant: cannot list the neighbours on %s: %w", bridge.Attrs().Name, err)
		}
		for _, neighbour := range known {
			switch {
			case !contains(subnet, neighbour.IP), neighbour.State&unix.NUD_NOARP != 0: // a group's, or everybody's
			case neighbour.State == unix.NUD_FAILED && len(neighbour.HardwareAddr) == 0: // which is how the kernel has one that it forgets
			case last:
				return fmt.Errorf("%w: neighbour %s on %s", ErrLeft, neighbour.IP, bridge.Attrs().Name)
			default:
				if err := kernel.NeighDel(&neighbour); err != nil && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("remnant: cannot forget neighbour %s on %s: %w", neighbour.IP, bridge.Attrs().Name, err)
				}
			}
		}
	}
	return nil
}
