package network

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/network/isolation"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestEvidence: only bridges whose names nobody has by chance tell where the engine's network is.
func TestEvidence(t *testing.T) {
	here := map[string]bool{"docker0": true, "br-0123456789ab": true, "abcdefghijklmno": true}
	const id = "0123456789abcdef"
	named := func(name, bridge string) network.Summary {
		return network.Summary{ID: id, Name: name, Driver: "bridge", Options: map[string]string{optionBridge: bridge}}
	}
	for name, test := range map[string]struct {
		networks  []network.Summary
		elsewhere bool
	}{
		"none":                      {nil, false},
		"the default network":       {[]network.Summary{named("bridge", "docker0"), {ID: id, Name: "host", Driver: "host"}}, false},
		"one that is not here":      {[]network.Summary{{ID: "f" + id, Name: "x", Driver: "bridge"}}, true},
		"one that is":               {[]network.Summary{{ID: id, Name: "x", Driver: "bridge"}}, false},
		"one of two":                {[]network.Summary{{ID: "f" + id, Driver: "bridge"}, {ID: id, Driver: "bridge"}}, false},
		"ours":                      {[]network.Summary{named(engine.NetworkName("x"), "abcdefghijklmno")}, false},
		"ours elsewhere":            {[]network.Summary{named(engine.NetworkName("x"), "abcdefghijklmn2")}, true},
		"somebody's chosen name":    {[]network.Summary{named("x", "mybridge")}, false},
		"a network over many hosts": {[]network.Summary{{ID: "f" + id, Name: "x", Driver: "overlay"}}, false},
	} {
		var e evidence
		for _, n := range test.networks {
			e.add(bridgeOf(n), here)
		}
		if got := e.elsewhere() != nil; got != test.elsewhere {
			t.Errorf("%s: elsewhere: %v", name, got)
		}
	}
}

func TestReachOfSpecs(t *testing.T) {
	everything := []isolation.Destination{{Prefix: everywhere}}
	server := netip.MustParsePrefix("192.0.2.53/32")
	asked := func(protocol string) isolation.Destination {
		return isolation.Destination{Prefix: server, Protocol: protocol, FirstPort: domain, LastPort: domain}
	}
	ns := &Networks{config: Config{NameServers: []netip.Addr{netip.MustParseAddr("9.9.9.9"), server.Addr()}}}
	internet := append(everything, asked("tcp"), asked("udp"))
	for name, test := range map[string]struct {
		spec  *agboxv1.NetworkSpec
		reach isolation.Reach
		dns   []string
	}{
		"nothing said": {nil, isolation.Reach{Allow: internet}, []string{"9.9.9.9", "192.0.2.53"}},
		"private":      {&agboxv1.NetworkSpec{Mode: "internet", Private: true}, isolation.Reach{Allow: internet, Private: true}, []string{"9.9.9.9", "192.0.2.53"}},
		"none":         {&agboxv1.NetworkSpec{Mode: "none"}, isolation.Reach{}, []string{nobody}},
		"no name server": {&agboxv1.NetworkSpec{Mode: "allow", Private: true, Allow: []*agboxv1.NetworkDestination{{Cidr: "0.0.0.0/0"}}},
			isolation.Reach{Allow: everything, Private: true}, []string{nobody}},
		"a name server": {&agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.0.2.53", Ports: []uint32{domain}}}},
			isolation.Reach{Allow: internet[1:]}, []string{"192.0.2.53"}},
		"a range of them": {&agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.0.2.52/31", Ports: []uint32{domain}, Protocol: "udp"}}},
			isolation.Reach{Allow: []isolation.Destination{{Prefix: netip.MustParsePrefix("192.0.2.52/31"), Protocol: "udp", FirstPort: domain, LastPort: domain}}}, []string{nobody}},
	} {
		if got := ns.reach(test.spec); !reflect.DeepEqual(got, test.reach) {
			t.Errorf("%s: reach %+v; want %+v", name, got, test.reach)
		}
		if got := ns.NameServers(test.spec); !reflect.DeepEqual(got, test.dns) {
			t.Errorf("%s: name servers %v; want %v", name, got, test.dns)
		}
	}
}

// TestNetworkRequest: what the engine is asked for leaves nothing to its defaults, which may have IPv6 in them.
func TestNetworkRequest(t *testing.T) {
	var asked struct {
		EnableIPv6 *bool
		Options    map[string]string
		Internal   bool
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/networks/create") {
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Error(err)
			}
		}
		io.WriteString(w, `{"Id": "0123456789abcdef"}`)
	}))
	defer server.Close()
	api, err := client.NewClientWithOpts(client.WithHost("tcp://"+strings.TrimPrefix(server.URL, "http://")), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	pool := netip.MustParsePrefix("10.213.0.0/16")
	ns := &Networks{engine: engine.New(api, engine.Owner{Instance: "test"}), subnets: newSubnets(pool, 28, nil), guard: &guard{rules: isolation.Open("test", pool)}}
	bridge := ns.guard.rules.Bridge()
	if _, err := ns.make(context.Background(), "box", request{bridge: bridge}); err != nil {
		t.Fatal(err)
	}
	if asked.EnableIPv6 == nil || *asked.EnableIPv6 || asked.Options[optionBridge] != bridge || !ns.guard.rules.Holds(bridge) {
		t.Errorf("asked for %+v, bridge %s", asked, bridge)
	}
	if _, err := net.InterfaceByName(bridge); err == nil {
		t.Errorf("there is a bridge %s", bridge)
	}
}
