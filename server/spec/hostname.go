package spec

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// RFC 1123: letters, digits and '-' in labels of at most 63.
var hostname = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)

const (
	// The longest that a kernel sets for a container (__NEW_UTS_LEN).
	longestHostname = 64
	// RFC 1123 for names that are looked up.
	longestName = 253
)

const hostnameRule = "use letters, digits and '-' in parts of at most 63 that are separated by '.'"

// validateNames checks hostname and extra_hosts, and writes addresses in their usual form.
func validateNames(field string, s *agboxv1.CreateSpec) error {
	switch {
	case s.Hostname != "" && !hostname.MatchString(s.Hostname):
		return refuse(ReasonHostnameInvalid, field+".hostname", "%s is no host name; %s", quote(s.Hostname), hostnameRule)
	case len(s.Hostname) > longestHostname:
		return refuse(ReasonHostnameInvalid, field+".hostname", "%s has %d characters and Linux takes %d; shorten it", quote(s.Hostname), len(s.Hostname), longestHostname)
	}
	for _, name := range slices.Sorted(maps.Keys(s.ExtraHosts)) {
		at, value := entry(field+".extra_hosts", name), s.ExtraHosts[name]
		if !hostname.MatchString(name) || len(name) > longestName {
			return refuse(ReasonExtraHostInvalid, at, "%s is no host name; %s, %d in all", quote(name), hostnameRule, longestName)
		}
		if value == "host-gateway" {
			return refuse(ReasonExtraHostInvalid, at, "host-gateway is the daemon's host, which no sandbox may reach; write the IP address of another machine")
		}
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" {
			return refuse(ReasonExtraHostInvalid, at, "%s is no IP address; write one like 192.0.2.1", quote(value))
		}
		s.ExtraHosts[name] = addr.String()
	}
	return nil
}
