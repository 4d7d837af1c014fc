package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/ranges"
)

// MaxDestinations bounds the list of one sandbox: each packet is compared with one after the other.
const MaxDestinations = 1010

// Reach is what a sandbox may open connections to, by the address and port that it asks for. Its own network is always
// open, and what is closed for every sandbox (the host, other sandboxes, IPv6) is closed whatever Reach says.
type Reach struct {
	Allow []Destination
	// Private: a range that is partly public means all of it. Otherwise of such a range, as of 0.0.0.0/0, only what is
	// public is open, and special addresses are where Allow names them or a special range around them.
	Private bool
}

// Destination is a part of the network.
type Destination struct {
	Prefix   netip.Prefix // IPv4
	Protocol string       // "tcp", "udp", or "" for everything that goes over IP
	// FirstPort to LastPort, both included, of tcp or udp; 0 and 0: all.
	FirstPort, LastPort uint16
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// Admit lets the sandbox on the bridge reach what reach says, in place of what it might before. A connection that it
// opened earlier to what is no longer allowed goes dead; one that was opened to it lives on.
//
// Hold writes what was admitted, so that after an error of the kernel it is Hold that has to be tried again. ErrInvalid names the bad part, and then nothing is admitted.
func (r *Rules) Admit(bridge string, reach Reach) error {
	if err := r.check(bridge, reach); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.admitted[bridge]
	c := r.reachChain(reach)
	r.admitted[bridge] = c
	switch {
	case known && before.Name == c.Name:
		return nil
	case known: // an element's verdict cannot be changed
		return r.install()
	}
	return r.explain("admit "+bridge+" to", r.write(func(conn *nftables.Conn) error {
		conn.AddChain(c.Chain)
		conn.FlushChain(c.Chain)
		r.fill(conn, c)
		return conn.SetAddElements(r.reaches(), element(bridge, c))
	}))
}

// Release forgets a bridge that is gone; one that was never admitted is no error, and neither is a kernel that has no rule
// for it any more.
func (r *Rules) Release(bridge string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.admitted[bridge]
	if !known {
		return nil
	}
	delete(r.admitted, bridge)
	used := slices.ContainsFunc(r.chains(), func(other chain) bool { return other.Name == c.Name })
	err := r.write(func(conn *nftables.Conn) error {
		if err := conn.SetDeleteElements(r.reaches(), element(bridge, c)); err != nil {
			return err
		}
		if !used {
			conn.FlushChain(c.Chain)
			conn.DelChain(c.Chain)
		}
		return nil
	})
	if isMissing(err) {
		return nil
	}
	return r.explain("take "+bridge+" out of the", err)
}

// Admitted lists the bridges that were admitted and not released.
func (r *Rules) Admitted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.admitted))
}

func (r *Rules) check(bridge string, reach Reach) error {
	if !r.Holds(bridge) {
		return fmt.Errorf("%w: bridge %s: the names of this instance's begin with %s", ErrInvalid, bridge, r.names)
	}
	if len(reach.Allow) > MaxDestinations {
		return fmt.Errorf("%w: %d destinations: %d are served: join neighbouring ranges", ErrInvalid, len(reach.Allow), MaxDestinations)
	}
	for _, d := range reach.Allow {
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

func (d Destination) check() error {
	bad := func(why string) error {
		return fmt.Errorf("%w: destination %s %q ports %d to %d: %s", ErrInvalid, d.Prefix, d.Protocol, d.FirstPort, d.LastPort, why)
	}
	_, known := protocols[d.Protocol]
	switch {
	case !d.Prefix.Addr().Is4() || !d.Prefix.IsValid():
		return bad("an IPv4 range is needed")
	case d.Protocol != "" && !known:
		return bad(`the protocol is "tcp", "udp" or ""`)
	case d.Protocol == "" && d.FirstPort+d.LastPort > 0:
		return bad("ports need a protocol")
	case d.FirstPort > d.LastPort:
		return bad("the first port is behind the last")
	}
	return nil
}

// reachChain is the chain of all sandboxes that may reach the same.
func (r *Rules) reachChain(reach Reach) chain {
	var named, wide [][]expr.Any
	for _, d := range reach.Allow {
		if reach.Private || ranges.Special(d.Prefix.Masked()) {
			named = append(named, d.rule())
		} else {
			wide = append(wide, d.rule())
		}
	}
	rules := named
	if len(wide) > 0 {
		rules = slices.Concat(named, [][]expr.Any{jump(specialChain)}, wide)
	}
	rules = append(rules, rule(drop))
	sum := sha256.New()
	for _, exprs := range rules {
		sum.Write(encode(exprs))
	}
	return chain{r.chain(reachPrefix + hex.EncodeToString(sum.Sum(nil)[:8])), rules}
}

func (d Destination) rule() []expr.Any {
	exprs := inside(destination, d.Prefix.Masked())
	if number, known := protocols[d.Protocol]; known {
		exprs = rule(exprs, protocol(number))
	}
	if d.FirstPort+d.LastPort > 0 {
		exprs = rule(exprs, ports(d.FirstPort, d.LastPort))
	}
	return rule(exprs, accept)
}
