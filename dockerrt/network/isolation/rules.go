// Package isolation keeps sandboxes away from the host, from each other and from what is not public with packet rules.
//
// Each sandbox has a bridge of its own, and the bridges of one daemon share the beginning of their names (see Bridge).
// The rules live in one nftables table of family inet, so that no rule of Docker, ufw or anybody else is touched:
//
//	prerouting   before Docker's DNAT: what comes from one of these bridges, whatever it says of itself
//	               IPv6                                   dropped
//	               a source that is not on the bridge     dropped
//	               for the host, published ports too      replies pass, all else is dropped
//	               for the own network                    passes
//	               for the pool, the other sandboxes      dropped
//	               replies to who came from outside       pass
//	  reach        map: bridge -> what its sandbox may open; a bridge that is not in it may nothing
//	    reach-…      destinations that pass; special ranges are dropped before the wide ones
//	input        what is delivered to the host by any other way (broadcast, multicast, somebody's DNAT): replies pass
//	special      the ranges that are not public
//
// The host may open connections to a sandbox, and whoever reaches a published port from outside may; a packet that
// answers them belongs to a tracked connection, in direction "reply". Nothing else from a sandbox counts as answer.
//
// Sandboxes have no IPv6. A name server on an address of the host is closed like everything else there.
package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

const (
	// With 1,000 bridges Install takes 20 ms and Verify 10; a lost answer must not hang the caller.
	kernelTimeout = 10 * time.Second
	// A transaction is sent in one piece and confirmed rule by rule: MaxDestinations rules need about 0.5 MB each way.
	kernelBuffer = 4 << 20
)

// Rules is the table of one daemon instance. Its methods may be called at the same time by many, in the network
// namespace that the engine's bridges are in; those that fail leave the kernel as it was.
type Rules struct {
	table *nftables.Table
	pool  netip.Prefix
	names string // how the bridges' names begin
	netns int    // 0: the one of the calling thread

	// mu lets one at a time read or write the kernel's table: what is read belongs together then.
	mu       sync.Mutex
	admitted map[string]chain // what the sandbox on each bridge may reach
	// installed: what the kernel has is of this process.
	installed bool
}

// Open names the table of the instance; nothing is read or written yet. The sandboxes' subnets are those of pool, which
// may not change while sandboxes of the instance exist.
func Open(instance string, pool netip.Prefix) *Rules {
	sum := sha256.Sum256([]byte(instance))
	return &Rules{
		table:    &nftables.Table{Family: nftables.TableFamilyINet, Name: "agbox-" + hex.EncodeToString(sum[:4])},
		pool:     pool.Masked(),
		names:    bridgePrefix + letters.EncodeToString(sum[:])[:instanceLetters],
		admitted: map[string]chain{},
	}
}

// Hold admits all these, beside those that are, looks whether the kernel has what was written, and installs it where not.
// altered is the ErrAltered that it found and mended. What an earlier process wrote counts as altered only where all of it
// is gone.
func (r *Rules) Hold(all map[string]Reach) (altered, err error) {
	for bridge, reach := range all {
		if err := r.check(bridge, reach); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.verify()
	if found != nil && !errors.Is(found, ErrAltered) {
		return nil, found
	}
	changed := false
	for bridge, reach := range all {
		c := r.reachChain(reach)
		changed = changed || r.admitted[bridge].Chain == nil || r.admitted[bridge].Name != c.Name
		r.admitted[bridge] = c
	}
	if r.installed || len(r.admitted) > 0 && errors.Is(found, ErrGone) {
		altered = found
	}
	if found == nil && !changed {
		return nil, nil
	}
	return altered, r.install()
}

// Install writes the whole table, all that was admitted included, in place of what is there, in one step: at no time less
// is in force. It fails with ErrNotPermitted, ErrUnsupported, or ErrInvalid for a bad pool.
func (r *Rules) Install() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.install()
}

func (r *Rules) install() error {
	if !r.pool.Addr().Is4() || r.pool.Bits() == 0 {
		return fmt.Errorf("%w: network pool %s: an IPv4 range is needed", ErrInvalid, r.pool)
	}
	err := r.write(func(conn *nftables.Conn) error {
		conn.AddTable(r.table) // so that there is something to delete
		conn.DelTable(r.table)
		conn.AddTable(r.table)
		if err := conn.AddSet(r.reaches(), nil); err != nil {
			return err
		}
		chains := r.chains()
		for _, c := range chains {
			conn.AddChain(c.Chain)
		}
		for _, c := range chains {
			r.fill(conn, c)
		}
		for _, bridge := range slices.Sorted(maps.Keys(r.admitted)) {
			if err := conn.SetAddElements(r.reaches(), element(bridge, r.admitted[bridge])); err != nil {
				return err
			}
		}
		return nil
	})
	r.installed = r.installed || err == nil
	if isMissing(err) { // the transaction refers only to what it makes
		return fmt.Errorf("%w: it has nftables, but not all of fib, ct and verdict maps: load nft_fib_inet and nft_ct, or use another kernel", ErrUnsupported)
	}
	return r.explain("install", err)
}

// Remove deletes the table and forgets what was admitted; without a table it does nothing more.
func (r *Rules) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.admitted)
	r.installed = false
	return r.explain("remove", r.write(func(conn *nftables.Conn) error {
		conn.AddTable(r.table) // so that there is something to delete
		conn.DelTable(r.table)
		return nil
	}))
}

// RemoveEarlier deletes the table of versions that went by source address. It holds the sandboxes that they made.
func (r *Rules) RemoveEarlier() error {
	return r.explain("remove", r.write(func(conn *nftables.Conn) error {
		earlier := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: r.table.Name}
		conn.AddTable(earlier) // so that there is something to delete
		conn.DelTable(earlier)
		return nil
	}))
}

func (r *Rules) fill(conn *nftables.Conn, c chain) {
	for _, exprs := range c.rules {
		conn.AddRule(&nftables.Rule{Table: r.table, Chain: c.Chain, Exprs: exprs})
	}
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
		return fmt.Errorf("isolation: cannot %s packet rules in table inet %s: %w", doing, r.table.Name, err)
	}
	switch errno {
	case syscall.EPERM, syscall.EACCES:
		return fmt.Errorf("%w: cannot %s packet rules: CAP_NET_ADMIN is missing: run the daemon as root or with this capability "+
			"(systemd: AmbientCapabilities=CAP_NET_ADMIN); without the rules sandboxes reach the host: %w", ErrNotPermitted, doing, errno)
	case syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT:
		return fmt.Errorf("%w: cannot %s packet rules: load the module nf_tables, or use a kernel that has it: %w", ErrUnsupported, doing, errno)
	case syscall.ENOENT:
		return fmt.Errorf("%w: table inet %s, or a part of it, is missing: install the rules again", ErrAltered, r.table.Name)
	}
	return fmt.Errorf("isolation: cannot %s packet rules in table inet %s: %w", doing, r.table.Name, errno)
}

func isMissing(err error) bool {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno == syscall.ENOENT
}
