package spec

import (
	"math"
	"net/netip"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	networkInternet = "internet"
	networkNone     = "none"
	networkAllow    = "allow"
)

// Each destination becomes packet rules, one for each port and protocol, and a packet is compared with one after the
// other; the packet filter takes no more than this.
const maxDestinations = 1000

// validateNetwork checks n and brings its destinations to their one form; nil is fine.
func validateNetwork(field string, n *agboxv1.NetworkSpec) error {
	if n == nil {
		return nil
	}
	mode := n.GetMode()
	if err := oneOf(ReasonNetworkModeInvalid, field+".mode", mode, networkInternet, networkNone, networkAllow); err != nil {
		return err
	}
	switch {
	case mode == networkNone && n.Private:
		return refuse(ReasonNetworkAllowInvalid, field+".private", "mode \"none\" reaches nothing, private addresses neither; leave private out or change the mode")
	case mode != networkAllow && len(n.Allow) > 0:
		return refuse(ReasonNetworkAllowInvalid, field+".allow", "destinations are for mode \"allow\" and the mode is %s; change the mode or leave them out", quote(mode))
	case mode == networkAllow && len(n.Allow) == 0:
		return refuse(ReasonNetworkAllowInvalid, field+".allow", "mode \"allow\" without destinations allows nothing; add some, or use mode \"none\" if that is meant")
	}
	rules := 0
	for i, d := range n.Allow {
		if err := validateDestination(element(field+".allow", i), d); err != nil {
			return err
		}
		one := max(1, len(d.Ports))
		if len(d.Ports) > 0 && d.Protocol == "" {
			one *= 2
		}
		if rules += one; rules > maxDestinations {
			return refuse(ReasonNetworkAllowInvalid, field+".allow",
				"the destinations are more than %d, counting one for each port and protocol; join neighbouring ranges, or leave ports out", maxDestinations)
		}
	}
	return nil
}

// Restricted reports whether the spec asks for less than the internet by other means than having no network: whether it
// takes packet rules.
func Restricted(s *agboxv1.CreateSpec) bool {
	switch s.GetNetwork().GetMode() {
	case networkAllow:
		return true
	case networkNone:
		return len(s.RequiredServices)+len(s.OptionalServices) > 0
	}
	return false
}

func validateDestination(field string, d *agboxv1.NetworkDestination) error {
	prefix, err := netip.ParsePrefix(d.GetCidr())
	if addr, addrErr := netip.ParseAddr(d.GetCidr()); addrErr == nil {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil || !prefix.Addr().Is4():
		return refuse(ReasonNetworkCIDRInvalid, field+".cidr", "%s is no IPv4 address or range; write it like 192.0.2.0/24, a name is not possible", quote(d.GetCidr()))
	case prefix != prefix.Masked():
		return refuse(ReasonNetworkCIDRInvalid, field+".cidr", "%s has bits set behind its length; write %s for the range or %s for the one address", quote(d.Cidr), prefix.Masked(), prefix.Addr())
	}
	for i, port := range d.Ports {
		if !isPort(port) {
			return refuse(ReasonNetworkPortInvalid, element(field+".ports", i), "%d is no port; use 1 to %d", port, math.MaxUint16)
		}
	}
	switch {
	case d.Protocol != "" && !isProtocol(d.Protocol):
		return refuse(ReasonNetworkProtocolInvalid, field+".protocol", "%s is no protocol with ports; use tcp or udp, or leave it out for both", quote(d.Protocol))
	case d.Protocol != "" && len(d.Ports) == 0:
		return refuse(ReasonNetworkProtocolInvalid, field+".protocol", "%s is given without ports; add ports, or leave it out for all ports and protocols", quote(d.Protocol))
	}
	d.Cidr = prefix.String()
	slices.Sort(d.Ports)
	d.Ports = slices.Compact(d.Ports)
	return nil
}

func isPort(n uint32) bool { return n >= 1 && n <= math.MaxUint16 }

func isProtocol(s string) bool { return s == "tcp" || s == "udp" }
