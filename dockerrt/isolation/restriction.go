package isolation

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// MaxDestinations bounds the list of one subnet: each packet is compared with one after the other.
const MaxDestinations = 1000

// Destination is what a restricted subnet may open connections to, by the address and port that it asked for.
type Destination struct {
	Prefix   netip.Prefix // IPv4
	Protocol string       // "tcp", "udp", or "" for everything that goes over IP
	// FirstPort to LastPort, both included, of tcp or udp; 0 and 0: all.
	FirstPort, LastPort uint16
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// Restrict lets the subnet open connections only to allow, in place of what was allowed before; with an empty list
// nowhere. Inside the subnet everything stays open, and what is closed for every sandbox (the host, other subnets of
// the pool) stays closed whatever allow says. A connection that the subnet opened earlier to what is no longer
// allowed goes dead; one that was opened to the subnet lives on. Multicast counts as outside the subnet.
//
// Names: Docker's resolver asks the upstream servers from inside the sandbox, so without their addresses and port 53
// of udp and tcp in allow only names of the sandbox's own containers resolve. The exception is an upstream server on
// the host's loopback: the engine asks that one itself, past all rules.
//
// ErrInvalid names the bad part; ErrAltered means that the rules have to be installed first.
func (r *Rules) Restrict(subnet netip.Prefix, allow []Destination) error {
	if !subnet.Addr().Is4() || subnet != subnet.Masked() || subnet.Bits() < r.pool.Bits() || !r.pool.Contains(subnet.Addr()) {
		return fmt.Errorf("%w: subnet %s: not one of pool %s", ErrInvalid, subnet, r.pool)
	}
	if len(allow) > MaxDestinations {
		return fmt.Errorf("%w: %d destinations: %d are served: join neighbouring ranges", ErrInvalid, len(allow), MaxDestinations)
	}
	var rules [][]expr.Any
	for _, d := range allow {
		exprs, err := d.rule()
		if err != nil {
			return err
		}
		rules = append(rules, exprs)
	}
	return r.explain("restrict "+subnet.String()+" with", r.write(func(conn *nftables.Conn) error {
		c := conn.AddChain(r.subnetChain(subnet))
		conn.FlushChain(c)
		for _, exprs := range rules {
			conn.AddRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: exprs})
		}
		seal, err := sealOf(rules)
		if err != nil {
			return err
		}
		conn.AddRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: drop, UserData: seal})
		return conn.SetAddElements(r.restricted(), interval(subnet, c))
	}))
}

func (d Destination) rule() ([]expr.Any, error) {
	bad := func(why string) error {
		return fmt.Errorf("%w: destination %s %q ports %d to %d: %s", ErrInvalid, d.Prefix, d.Protocol, d.FirstPort, d.LastPort, why)
	}
	number, known := protocols[d.Protocol]
	everyPort := d.FirstPort == 0 && d.LastPort == 0
	switch {
	case !d.Prefix.Addr().Is4() || !d.Prefix.IsValid():
		return nil, bad("an IPv4 range is needed")
	case d.Protocol != "" && !known:
		return nil, bad(`the protocol is "tcp", "udp" or ""`)
	case d.Protocol == "" && !everyPort:
		return nil, bad("ports need a protocol")
	case d.FirstPort > d.LastPort:
		return nil, bad("the first port is behind the last")
	}
	exprs := inside(destination, d.Prefix.Masked())
	if known {
		exprs = rule(exprs, protocol(number))
	}
	if !everyPort {
		exprs = rule(exprs, ports(d.FirstPort, d.LastPort))
	}
	return rule(exprs, accept), nil
}

// Release takes the restriction off the subnet; without one it does nothing.
func (r *Rules) Release(subnet netip.Prefix) error {
	if !subnet.Addr().Is4() || subnet != subnet.Masked() {
		return fmt.Errorf("%w: subnet %s: an IPv4 range without host bits is needed", ErrInvalid, subnet)
	}
	err := r.write(func(conn *nftables.Conn) error {
		c := conn.AddChain(r.subnetChain(subnet)) // so that there is something to delete
		elements := interval(subnet, c)
		if err := conn.SetAddElements(r.restricted(), elements); err != nil {
			return err
		}
		if err := conn.SetDeleteElements(r.restricted(), elements); err != nil {
			return err
		}
		conn.FlushChain(c)
		conn.DelChain(c)
		return nil
	})
	if isMissing(err) {
		return nil // without a table nothing is restricted
	}
	return r.explain("take the restriction of "+subnet.String()+" out of the", err)
}

// Restricted lists the subnets that are restricted in the kernel, in order, whichever process did it; none when the
// rules are not installed. What Restrict or Release change meanwhile may or may not show.
func (r *Rules) Restricted() ([]netip.Prefix, error) {
	conn, err := r.dial()
	if err != nil {
		return nil, r.explain("read", err)
	}
	defer conn.CloseLasting()
	if _, err := conn.ListTableOfFamily(r.table.Name, r.table.Family); isMissing(err) {
		return nil, nil
	} else if err != nil {
		return nil, r.explain("read", err)
	}
	list, err := r.subnets(conn)
	return list, r.explain("read", err)
}

func (r *Rules) subnets(conn *nftables.Conn) ([]netip.Prefix, error) {
	elements, err := conn.GetSetElements(r.restricted())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(elements, func(a, b nftables.SetElement) int {
		order := bytes.Compare(a.Key, b.Key)
		if order == 0 && a.IntervalEnd { // one subnet may begin where another ends
			order = -1
		}
		return order
	})
	var list []netip.Prefix
	for i, e := range elements {
		if !e.IntervalEnd || i == 0 || elements[i-1].IntervalEnd {
			continue
		}
		first, end := elements[i-1].Key, e.Key
		size := binary.BigEndian.Uint32(end) - binary.BigEndian.Uint32(first)
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte(first)), 32-bits.TrailingZeros32(size)))
	}
	return list, nil
}

// sealOf is the comment on the last rule of a subnet's chain: it tells whether the rules before it are still those
// that were written, whichever process wrote them.
func sealOf(rules [][]expr.Any) ([]byte, error) {
	sum := sha256.New()
	for _, exprs := range rules {
		encoded, err := encode(exprs)
		if err != nil {
			return nil, err
		}
		sum.Write(encoded)
	}
	return userdata.AppendString(nil, userdata.TypeComment, "rules "+hex.EncodeToString(sum.Sum(nil)[:16])), nil
}
