package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/ranges"
	"github.com/agbox-dev/agbox/sdk"
)

type networkRequest struct {
	AllowOut           []string        `json:"allowOut,omitempty"`
	DenyOut            []string        `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string          `json:"maskRequestHost,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
	EgressProxy        json.RawMessage `json:"egressProxy,omitempty"`
	HTTPSPorts         json.RawMessage `json:"httpsPorts,omitempty"`
}

// maxRanges is what the daemon takes. maxDenied bounds the work of taking ranges from others.
const (
	maxRanges = 1000
	maxDenied = 200
)

// resolver answers names where a network is less than the internet, as in E2B.
var resolver = netip.MustParsePrefix("8.8.8.8/32")

// hostName is what a Host header may be; "" is none.
var hostName = regexp.MustCompile(`^([a-zA-Z0-9._-]{1,253}(:[0-9]{1,5})?)?$`)

var everywhere = netip.MustParsePrefix("0.0.0.0/0")

// networkOf is what the wire's rules mean: what is denied is taken from the internet, what is allowed is put back.
func networkOf(text json.RawMessage, internet *bool) (*sdk.Network, error) {
	var request networkRequest
	if given(text) {
		if err := json.Unmarshal(text, &request); err != nil {
			return nil, refused(http.StatusBadRequest, "network is not the JSON that was expected: %s", err)
		}
	}
	if err := request.offered(); err != nil {
		return nil, err
	}
	if len(request.DenyOut) > maxDenied || len(request.AllowOut) > maxRanges {
		return nil, refused(http.StatusBadRequest, "network has more than %d ranges in denyOut or %d in allowOut: name larger ones", maxDenied, maxRanges)
	}
	deny, err := prefixes("denyOut", "invalid denied CIDR", request.DenyOut)
	if err != nil {
		return nil, err
	}
	allow, err := prefixes("allowOut", "a domain or an invalid CIDR", request.AllowOut)
	if err != nil {
		return nil, err
	}
	for _, a := range allow {
		if a != everywhere && slices.ContainsFunc(ranges.Reserved, a.Overlaps) {
			return nil, refused(http.StatusBadRequest, "allowOut %s is not, or not only, public: sandboxes reach public addresses only", a)
		}
	}
	if internet != nil && !*internet {
		deny = []netip.Prefix{everywhere}
	}
	if len(deny) == 0 || slices.Contains(allow, everywhere) {
		return &sdk.Network{Mode: sdk.NetworkInternet}, nil
	}
	open := []netip.Prefix{everywhere}
	for _, d := range slices.Concat(deny, ranges.Reserved) {
		open = without(open, d)
	}
	named := slices.ContainsFunc(open, func(p netip.Prefix) bool { return p.Overlaps(resolver) })
	open = append(open, allow...)
	if len(open) == 0 {
		return &sdk.Network{Mode: sdk.NetworkNone}, nil
	}
	network := &sdk.Network{Mode: sdk.NetworkAllow}
	for _, p := range open {
		network.Allow = append(network.Allow, sdk.Destination{CIDR: p.String()})
	}
	if named {
		network.Allow = append(network.Allow, sdk.Destination{CIDR: resolver.String(), Ports: []uint16{53}})
	}
	if len(network.Allow) >= maxRanges {
		return nil, refused(http.StatusBadRequest, "denyOut leaves %d ranges, more than the %d that agbox takes: deny fewer or larger ones", len(open), maxRanges)
	}
	return network, nil
}

// offered refuses what agbox has not.
func (r networkRequest) offered() error {
	switch {
	case given(r.Rules):
		return refused(http.StatusBadRequest, "network.rules is not offered by agbox: requests cannot be transformed on their way")
	case given(r.EgressProxy):
		return refused(http.StatusBadRequest, "network.egressProxy is not offered by agbox: set HTTPS_PROXY by envVars")
	case given(r.HTTPSPorts):
		return refused(http.StatusBadRequest, "network.httpsPorts is not offered by agbox: have ports speak HTTP, TLS ends at the gateway")
	case !hostName.MatchString(strings.ReplaceAll(r.MaskRequestHost, "${PORT}", "80")):
		return refused(http.StatusBadRequest, "network.maskRequestHost %q is no host, with or without a port", r.MaskRequestHost)
	}
	return nil
}

// prefixes reads IPv4 addresses and ranges.
func prefixes(field, wrong string, list []string) ([]netip.Prefix, error) {
	var found []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); addressErr == nil {
			p, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil || !p.Addr().Is4() {
			return nil, refused(http.StatusBadRequest, "%s %q in network.%s: agbox takes IPv4 addresses and ranges", wrong, text, field)
		}
		found = append(found, p.Masked())
	}
	return found, nil
}

// without takes a range from others, and splits those that it lies in.
func without(from []netip.Prefix, taken netip.Prefix) []netip.Prefix {
	var left []netip.Prefix
	for _, p := range from {
		switch {
		case !p.Overlaps(taken):
			left = append(left, p)
		case p.Bits() >= taken.Bits(): // it lies in what is taken
		default:
			low, high := halves(p)
			left = append(left, without([]netip.Prefix{low, high}, taken)...)
		}
	}
	return left
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bytes := p.Addr().As4()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(netip.AddrFrom4(bytes), p.Bits()+1)
}

// shownNetwork is what info tells of it.
func shownNetwork(text json.RawMessage) json.RawMessage {
	var request networkRequest
	if json.Unmarshal(text, &request) != nil {
		return nil
	}
	shown, err := json.Marshal(request)
	if err != nil {
		return nil
	}
	return shown
}

// updateNetwork says that a network stays what it was made as.
func (c *call) updateNetwork() (int, any, error) {
	if _, err := c.running(); err != nil {
		return 0, nil, err
	}
	return 0, nil, refused(http.StatusNotImplemented, "agbox does not change the network of a sandbox that exists: say it at the create, or make another one from a snapshot")
}

// labelPorts is what a sandbox of another client says with "public", that everybody may use its ports.
const labelPorts = "ports"

// Traffic says of a sandbox with these labels whether everybody may use its ports, as E2B has it unless the create says otherwise,
// and what Host its servers are to see, "" for the one that was asked for.
func Traffic(labels map[string]string) (public bool, host string) {
	n, found := noteOf(labels)
	if !found {
		return labels[labelPorts] == "public", ""
	}
	var request networkRequest
	if given(n.Network) && json.Unmarshal(n.Network, &request) != nil {
		return false, ""
	}
	return request.AllowPublicTraffic == nil || *request.AllowPublicTraffic, request.MaskRequestHost
}
