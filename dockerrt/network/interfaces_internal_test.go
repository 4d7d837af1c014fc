package network

import (
	"errors"
	"net"
	"testing"

	"github.com/mdlayher/netlink"
)

// TestInterruptedList: a list that changed while it was read is read again, and not for ever.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	cut := []netlink.Message{{}, {Header: netlink.Header{Flags: netlink.Multi | netlink.DumpInterrupted}}}
	asked := 0
	list, err := whole(func() ([]netlink.Message, error) {
		if asked++; asked < 3 {
			return cut, nil
		}
		return []netlink.Message{{}, {}, {}}, nil
	})
	if err != nil || len(list) != 3 {
		t.Errorf("after two lists that were interrupted comes %v, %v", list, err)
	}
	if list, err := whole(func() ([]netlink.Message, error) { return cut, nil }); !errors.Is(err, errInterrupted) {
		t.Errorf("what is always interrupted is %v, %v", list, err)
	}
}

func TestInterfaces(t *testing.T) {
	t.Parallel()
	names, err := interfaces()
	if err != nil {
		t.Fatal(err)
	}
	loopback, err := net.InterfaceByIndex(1)
	if err != nil || !names[loopback.Name] {
		t.Errorf("%v is not among %v: %v", loopback, names, err)
	}
}
