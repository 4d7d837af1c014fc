package network

import (
	"bufio"
	"net/netip"
	"os"
	"strings"

	"github.com/agbox-dev/agbox/dockerrt/network/isolation"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/ranges"
)

// Network modes of a spec; neither of them is internet.
const (
	ModeNone  = "none"
	modeAllow = "allow"
)

// restricted reports whether the spec asks for less than the internet, so that it cannot be had without packet rules.
func restricted(spec *agboxv1.NetworkSpec) bool {
	return spec.GetMode() == ModeNone || spec.GetMode() == modeAllow
}

var everywhere = netip.MustParsePrefix("0.0.0.0/0")

// domain is the port of name servers.
const domain = 53

// reach is what a validated spec stands for now: in mode internet the name servers are this host's of now.
func (ns *Networks) reach(spec *agboxv1.NetworkSpec) isolation.Reach {
	switch spec.GetMode() {
	case ModeNone:
		return isolation.Reach{}
	case modeAllow:
		return isolation.Reach{Allow: destinations(spec), Private: spec.Private}
	}
	reach := isolation.Reach{Allow: []isolation.Destination{{Prefix: everywhere}}, Private: spec.GetPrivate()}
	servers := ns.config.NameServers
	if len(servers) == 0 {
		servers = hostNameServers()
	}
	for _, server := range servers {
		prefix := netip.PrefixFrom(server, server.BitLen())
		if ranges.Special(prefix) {
			for _, protocol := range protocols("") {
				reach.Allow = append(reach.Allow, isolation.Destination{Prefix: prefix, Protocol: protocol, FirstPort: domain, LastPort: domain})
			}
		}
	}
	return reach
}

// nobody is the name server of containers that may ask none: their own loopback, where nobody listens.
const nobody = "127.0.0.1"

// NameServers are those that the engine's resolver asks for a container, from the container's own network. With none the
// engine takes the host's, and one on the host's loopback it asks from the host's network, past all rules.
func (ns *Networks) NameServers(spec *agboxv1.NetworkSpec) []string {
	var servers []string
	if !restricted(spec) {
		for _, server := range ns.config.NameServers {
			servers = append(servers, server.String())
		}
		return servers
	}
	for _, destination := range destinations(spec) {
		server := destination.Prefix.Addr().String()
		if destination.Prefix.IsSingleIP() && destination.FirstPort == domain && (len(servers) == 0 || servers[len(servers)-1] != server) {
			servers = append(servers, server)
		}
	}
	if len(servers) == 0 {
		return []string{nobody}
	}
	return servers
}

// destinations are what a validated spec allows.
func destinations(spec *agboxv1.NetworkSpec) []isolation.Destination {
	var list []isolation.Destination
	for _, allowed := range spec.GetAllow() {
		prefix, err := netip.ParsePrefix(allowed.Cidr)
		if err != nil {
			address, err := netip.ParseAddr(allowed.Cidr)
			if err != nil {
				continue
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		if len(allowed.Ports) == 0 {
			list = append(list, isolation.Destination{Prefix: prefix})
		}
		for _, port := range allowed.Ports {
			for _, protocol := range protocols(allowed.Protocol) {
				list = append(list, isolation.Destination{Prefix: prefix, Protocol: protocol, FirstPort: uint16(port), LastPort: uint16(port)})
			}
		}
	}
	return list
}

func protocols(named string) []string {
	if named == "" {
		return []string{"tcp", "udp"}
	}
	return []string{named}
}

// hostNameServers are the name servers of this host that containers can ask themselves, as the engine finds them: those of
// IPv4 that are not on the host's loopback.
func hostNameServers() []netip.Addr {
	servers, local := readNameServers("/etc/resolv.conf")
	if len(servers) == 0 && local {
		servers, _ = readNameServers("/run/systemd/resolve/resolv.conf")
	}
	return servers
}

func readNameServers(path string) (servers []netip.Addr, local bool) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		switch address, err := netip.ParseAddr(fields[1]); {
		case err != nil:
		case address.IsLoopback():
			local = true
		case address.Is4():
			servers = append(servers, address)
		}
	}
	return servers, local
}
