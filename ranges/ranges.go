// Package ranges knows which addresses are not public. It stands by itself.
package ranges

import "net/netip"

// Reserved are the IPv4 ranges that are not public: those of IANA's special-purpose address registry (RFC 6890 and its
// updates) that are not reachable globally, the relay anycast that was withdrawn (RFC 7526), and multicast. The whole of
// 192.0.0.0/24 counts, although two addresses in it are reachable. Of IPv6 nothing is open, so that there is no such list.
var Reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("10.0.0.0/8"),      // private
	netip.MustParsePrefix("100.64.0.0/10"),   // between carriers and their customers
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, the metadata of clouds
	netip.MustParsePrefix("172.16.0.0/12"),   // private
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays, withdrawn
	netip.MustParsePrefix("192.168.0.0/16"),  // private
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
}

// Special reports whether all of the range is one that is not public.
func Special(p netip.Prefix) bool {
	for _, s := range Reserved {
		if p.Bits() >= s.Bits() && s.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
