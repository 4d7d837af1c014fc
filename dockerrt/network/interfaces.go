package network

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumps is how often a list of the kernel is asked for that changes while it is read.
const dumps = 10

// errInterrupted: what the kernel lists changes again and again.
var errInterrupted = errors.New("dockerrt: network interfaces change while they are listed")

// interfaces returns the names of the network interfaces that there are here.
func interfaces() (map[string]bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list network interfaces: %w", err)
	}
	defer conn.Close()
	list, err := whole(func() ([]netlink.Message, error) {
		return conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
			Data:   make([]byte, unix.SizeofIfInfomsg),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list network interfaces: %w", err)
	}
	names := map[string]bool{}
	for _, m := range list {
		if len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attributes, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("dockerrt: cannot read a network interface: %w", err)
		}
		for attributes.Next() {
			if attributes.Type() == unix.IFLA_IFNAME {
				names[attributes.String()] = true
			}
		}
	}
	return names, nil
}

// whole asks for a list until one was not interrupted by a change: the kernel leaves out what has moved.
func whole(dump func() ([]netlink.Message, error)) ([]netlink.Message, error) {
	for range dumps {
		list, err := dump()
		if err != nil {
			return nil, err
		}
		if !interrupted(list) {
			return list, nil
		}
	}
	return nil, errInterrupted
}

func interrupted(list []netlink.Message) bool {
	for _, m := range list {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return true
		}
	}
	return false
}
