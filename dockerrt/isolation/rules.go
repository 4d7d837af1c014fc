// Package isolation keeps sandboxes away from the host and from each other with packet rules.
//
// The rules live in one nftables table of family ip, so that no rule of Docker, ufw or anybody else is touched:
//
//	prerouting   before Docker's DNAT: what comes from the pool goes on to
//	  host         when it is for an address of the host, published ports included: only replies pass
//	  pool         when it is for the pool: only the own subnet passes
//	  restricted   map: subnet -> its chain
//	    sandbox-…    what the subnet may reach; all else is dropped
//	input        what is delivered to the host by any other way (broadcast, multicast, somebody's DNAT): host
//
// The host may open connections to a sandbox, and whoever reaches a published port from outside may; a packet that
// answers them is one whose connection tracking direction is "reply". Nothing else from a sandbox counts as answer.
//
// Rules go by source address: a container that may forge one (NET_RAW, NET_ADMIN) is not held, and neither is IPv6.
// The pool must hold sandboxes only: whatever else has an address in it is kept from the host as well. A name server
// on an address of the host is closed like everything else there.
package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

const (
	// With 1,000 restricted subnets Install takes 20 ms and Verify 80; a lost answer must not hang the caller.
	kernelTimeout = 10 * time.Second
	// A transaction is sent in one piece and confirmed rule by rule: MaxDestinations rules need about 0.5 MB each way.
	kernelBuffer = 4 << 20
)

// Rules is the table of one daemon instance. Its methods may be called at the same time by many, in the network
// namespace that the engine's bridges are in; those that fail leave the kernel as it was.
type Rules struct {
	table *nftables.Table
	pool  netip.Prefix
	bits  int
	netns int // 0: the one of the calling thread
}

// Open names the table of the instance; nothing is read or written yet. Every sandbox has one subnet with a prefix
// of subnetBits out of pool. Neither may change while sandboxes of the instance exist.
func Open(instance string, pool netip.Prefix, subnetBits int) *Rules {
	sum := sha256.Sum256([]byte(instance))
	return &Rules{
		table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "agbox-" + hex.EncodeToString(sum[:4])},
		pool:  pool.Masked(),
		bits:  subnetBits,
	}
}

// Install puts the base rules into force in one step, replacing those that are there. Restrictions stay in force
// throughout. It fails with ErrNotPermitted, ErrUnsupported, or ErrInvalid for a bad pool.
func (r *Rules) Install() error {
	if !r.pool.Addr().Is4() || r.bits < r.pool.Bits() || r.bits > 32 {
		return fmt.Errorf("%w: network pool %s with subnets of /%d: an IPv4 range and a prefix length inside it are needed", ErrInvalid, r.pool, r.bits)
	}
	// By itself: it also wakes a dormant table, and the kernel changes no chains in the same transaction.
	if err := r.write(func(conn *nftables.Conn) error { conn.AddTable(r.table); return nil }); err != nil {
		return r.explain("install", err)
	}
	err := r.write(func(conn *nftables.Conn) error {
		if err := conn.AddSet(r.restricted(), nil); err != nil {
			return err
		}
		chains := r.base()
		for _, c := range chains {
			old := conn.AddChain(&nftables.Chain{Table: r.table, Name: c.Name})
			if c.Hooknum == nil {
				conn.FlushChain(old)
				continue
			}
			conn.DelChain(old) // the hook and the priority of a chain cannot be changed
			conn.AddChain(c.Chain)
		}
		for _, c := range chains {
			for _, exprs := range c.rules {
				conn.AddRule(&nftables.Rule{Table: r.table, Chain: c.Chain, Exprs: exprs})
			}
		}
		return nil
	})
	if isMissing(err) { // the transaction refers only to what it makes
		return fmt.Errorf("%w: it has nftables, but not all of fib, ct and verdict maps: load nft_fib_ipv4 and nft_ct, or use another kernel", ErrUnsupported)
	}
	return r.explain("install", err)
}

// Remove deletes the table with every restriction; without one it does nothing.
func (r *Rules) Remove() error {
	return r.explain("remove", r.write(func(conn *nftables.Conn) error {
		conn.AddTable(r.table) // so that there is something to delete
		conn.DelTable(r.table)
		return nil
	}))
}

// write hands what fill adds to the kernel as one transaction.
func (r *Rules) write(fill func(*nftables.Conn) error) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.CloseLasting()
	if err := fill(conn); err != nil {
		return err
	}
	return conn.Flush()
}

func (r *Rules) dial() (*nftables.Conn, error) {
	return nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(r.netns), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(kernelBuffer), c.SetWriteBuffer(kernelBuffer), c.SetDeadline(time.Now().Add(kernelTimeout)))
	}))
}

// explain says what a person can do about err. The kernel repeats itself for each message of a transaction, so only
// its first answer is told.
func (r *Rules) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	errno, ok := errors.AsType[syscall.Errno](err) // finds the first
	if !ok {
		return fmt.Errorf("isolation: cannot %s packet rules in table ip %s: %w", doing, r.table.Name, err)
	}
	switch errno {
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("%w: cannot %s packet rules: CAP_NET_ADMIN is missing: run the daemon as root or with this capability "+
			"(systemd: AmbientCapabilities=CAP_NET_ADMIN); without the rules sandboxes reach the host: %w", ErrNotPermitted, doing, errno)
	case syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT:
		return fmt.Errorf("%w: cannot %s packet rules: load the module nf_tables, or use a kernel that has it: %w", ErrUnsupported, doing, errno)
	case syscall.ENOENT:
		return fmt.Errorf("%w: table ip %s, or a part of it, is missing: install the rules again", ErrAltered, r.table.Name)
	}
	return fmt.Errorf("isolation: cannot %s packet rules in table ip %s: %w", doing, r.table.Name, errno)
}

func isMissing(err error) bool {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno == syscall.ENOENT
}
