package isolation

import (
	"context"
	"errors"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch calls changed after each change of the table by whomever, the caller's own included, until ctx ends; it may call
// it once too often. It returns an error when the kernel does not tell.
func (r *Rules) Watch(ctx context.Context, changed func()) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: r.netns})
	if err == nil {
		err = errors.Join(conn.SetReadBuffer(kernelBuffer), conn.JoinGroup(unix.NFNLGRP_NFTABLES))
	}
	if err != nil {
		return r.explain("watch", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() { stop(); conn.Close() }()
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS): // some were lost
			changed()
			continue
		case err != nil:
			return r.explain("watch", err)
		}
		for _, m := range messages {
			if r.concerns(m) {
				changed()
			}
		}
	}
}

// concerns reports whether a message is about the table: its name is the first attribute of everything in it.
func (r *Rules) concerns(m netlink.Message) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < 4 || m.Data[0] != unix.NFPROTO_INET {
		return false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return false
	}
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_TABLE_NAME {
			return attributes.String() == r.table.Name
		}
	}
	return false
}
