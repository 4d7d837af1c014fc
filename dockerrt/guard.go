package dockerrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/isolation"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Network modes of a spec; none of them is internet.
const (
	modeNone  = "none"
	modeAllow = "allow"
)

// guard keeps the packet rules in force while there are networks of ours.
type guard struct {
	rules *isolation.Rules
	// turn holds one token; whoever has it may change what follows and the rules.
	turn    chan struct{}
	up      bool
	problem error
	// networks counts ours, those that are being made included.
	networks int
	// lifting are the goroutines that take the rules away.
	lifting sync.WaitGroup
}

func newGuard(config Config) *guard {
	g := &guard{rules: isolation.Open(config.Instance, config.Pool, config.SubnetBits), turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

// protect puts the rules in force, again when somebody altered them. Without the right to do so it goes on without
// them, unless the configuration requires them.
func (d *Docker) protect(ctx context.Context) error {
	g := d.guard
	if g.up {
		err := g.rules.Verify()
		if err == nil {
			return nil
		}
		d.log.Warn("audit: the packet rules were altered and are put back", "error", err)
	}
	before := g.problem
	g.problem = g.rules.Install()
	g.up = g.problem == nil
	switch {
	case g.up:
		return d.restrictAgain(ctx)
	case d.config.IsolationRequired:
		return fmt.Errorf("isolation.required is set, and sandboxes cannot be kept from this host: %w", g.problem)
	}
	if before == nil || before.Error() != g.problem.Error() {
		d.log.Warn("sandboxes are not kept from this host and from each other", "error", g.problem)
	}
	return nil
}

// restrictAgain restricts the networks that there are as their labels say.
func (d *Docker) restrictAgain(ctx context.Context) error {
	ctx, cancel := d.read(ctx)
	defer cancel()
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.mine("")})
	if err != nil {
		return fmt.Errorf("cannot list networks: %w", err)
	}
	d.guard.networks = max(d.guard.networks, len(networks))
	known := map[netip.Prefix]bool{}
	for _, n := range networks {
		spec := &agboxv1.NetworkSpec{}
		if text := n.Labels[labelNetwork]; text == "" || json.Unmarshal([]byte(text), spec) != nil {
			continue
		}
		for _, subnet := range subnetsOf(n.IPAM) {
			known[subnet] = true
			if err := d.guard.rules.Restrict(subnet, destinations(spec)); err != nil {
				return err
			}
		}
	}
	restricted, err := d.guard.rules.Restricted()
	if err != nil {
		return err
	}
	for _, subnet := range restricted {
		if !known[subnet] {
			if err := d.guard.rules.Release(subnet); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter counts a network that is being made and puts the rules in force for it.
func (d *Docker) enter(ctx context.Context) error {
	<-d.guard.turn
	defer func() { d.guard.turn <- struct{}{} }()
	d.guard.networks++
	return d.protect(ctx)
}

// leave takes back a network that was not made.
func (d *Docker) leave() {
	<-d.guard.turn
	d.guard.networks--
	d.guard.turn <- struct{}{}
}

// restrict lets what is on the subnet reach only what the spec allows.
func (d *Docker) restrict(subnet netip.Prefix, spec *agboxv1.NetworkSpec) error {
	<-d.guard.turn
	defer func() { d.guard.turn <- struct{}{} }()
	if !d.guard.up {
		return coded("NETWORK_RESTRICTION_UNAVAILABLE",
			"network mode %s needs packet rules, and agboxd cannot set them: %w", spec.Mode, d.guard.problem)
	}
	return d.guard.rules.Restrict(subnet, destinations(spec))
}

// errElsewhere: rules that agboxd sets do not hold for this engine's sandboxes.
var errElsewhere = errors.New("the engine's networks are in another network namespace than agboxd, or on another machine")

// reachable fails when the rules do not hold for a network that was made, and they must.
func (d *Docker) reachable(networkID string) error {
	_, err := net.InterfaceByName("br-" + networkID[:12]) // the engine's own naming
	if err == nil {
		return nil
	}
	<-d.guard.turn
	defer func() { d.guard.turn <- struct{}{} }()
	if d.guard.problem == nil {
		d.log.Warn("sandboxes are not kept from this host and from each other", "error", errElsewhere)
		d.guard.problem = errElsewhere
	}
	if d.config.IsolationRequired {
		return fmt.Errorf("isolation.required is set: %w", errElsewhere)
	}
	return nil
}

// close takes the rules away where nothing of ours is left to be kept in.
func (g *guard) close() error {
	g.lifting.Wait()
	<-g.turn
	defer func() { g.turn <- struct{}{} }()
	if g.up && g.networks == 0 {
		return g.rules.Remove()
	}
	return nil
}

// release lets go of a subnet whose network is gone, and of all rules, soon, with the last one.
func (d *Docker) release(subnet netip.Prefix, restricted bool) {
	g := d.guard
	<-g.turn
	defer func() { g.turn <- struct{}{} }()
	g.networks--
	if !g.up {
		return
	}
	if restricted {
		if err := g.rules.Release(subnet); err != nil {
			d.log.Warn("a network's packet rules could not be taken away", "subnet", subnet, "error", err)
		}
	}
	if g.networks <= 0 {
		g.lifting.Go(d.lift) // nobody has to wait for it
	}
}

// lift takes all rules away, unless there is something to keep in again.
func (d *Docker) lift() {
	g := d.guard
	<-g.turn
	defer func() { g.turn <- struct{}{} }()
	if !g.up || g.networks > 0 {
		return
	}
	g.up = false
	if err := g.rules.Remove(); err != nil {
		d.log.Warn("packet rules could not be taken away", "error", err)
	}
}

// Isolated reports whether sandboxes are kept from the host and from each other, or would be if there were any, and
// why not.
func (d *Docker) Isolated() (bool, string) {
	<-d.guard.turn
	defer func() { d.guard.turn <- struct{}{} }()
	if d.guard.problem != nil {
		return false, d.guard.problem.Error()
	}
	return true, ""
}

// destinations are what a validated spec allows.
func destinations(spec *agboxv1.NetworkSpec) []isolation.Destination {
	if spec.Mode != modeAllow {
		return nil
	}
	var list []isolation.Destination
	for _, allowed := range spec.Allow {
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
