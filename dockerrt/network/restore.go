package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/network/remnant"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// restore brings a network into the state that it was made in, or removes it, and reports which. Where anything is in doubt it
// is removed. Nobody else has the network.
func (ns *Networks) restore(ctx context.Context, name string) (ready bool, err error) {
	n, err := ns.inspect(ctx, name)
	switch {
	case engine.IsNotFound(err):
		return false, ns.forget(name)
	case err != nil:
		return false, err
	case !ns.made(n): // somebody made it who has seen the name
		return false, ns.claims.end(name)
	}
	if _, claimed := ns.claims.find(name); !claimed && len(n.Containers) > 0 {
		if found, err := ns.reclaim(ctx, n); found || err != nil {
			return false, err
		}
	}
	if doubt := ns.clear(n); doubt != nil {
		ns.log.Info("a network is removed and not given to another sandbox", "network", name, "reason", doubt)
		return false, ns.discard(ctx, name)
	}
	return true, ns.claims.end(name)
}

// made reports whether this daemon, or an earlier one, made the network for whoever needs one.
func (ns *Networks) made(n network.Inspect) bool {
	bridge, neutral := ns.guard.neutral(n.Name)
	return neutral && n.Labels[engine.LabelInstance] == ns.engine.Instance() && n.Labels[engine.LabelComponent] == engine.ComponentNetwork &&
		n.Labels[engine.LabelSandbox] == "" && bridgeOf(n) == bridge
}

// clear takes away what is left of whoever had the network, and returns why it cannot be another's.
func (ns *Networks) clear(n network.Inspect) error {
	subnets := subnetsOf(n.IPAM)
	switch {
	case len(n.Containers) > 0:
		return fmt.Errorf("%d containers are connected", len(n.Containers))
	case n.Internal, n.EnableIPv6, n.Driver != "bridge":
		return fmt.Errorf("its driver is %s, internal %t, IPv6 %t", n.Driver, n.Internal, n.EnableIPv6)
	case len(subnets) != 1 || !ns.subnets.pool.Contains(subnets[0].Addr()) || subnets[0].Bits() != ns.subnets.bits:
		return fmt.Errorf("its subnets are %v, not one /%d of %s", subnets, ns.subnets.bits, ns.subnets.pool)
	}
	bridge := bridgeOf(n)
	if err := ns.guard.withdraw(bridge); err != nil {
		return err
	}
	return remnant.Clear(bridge, subnets[0])
}

// reclaim gives a network back to the sandbox whose containers are on it, where the file that said so is lost: it reaches what
// its primary's label says, or nothing.
func (ns *Networks) reclaim(ctx context.Context, n network.Inspect) (found bool, err error) {
	ctx, cancel := ns.engine.Read(ctx)
	defer cancel()
	containers, err := ns.engine.Containers(ctx, "", true)
	if err != nil {
		return false, err
	}
	one := claim{Network: &agboxv1.NetworkSpec{Mode: ModeNone}, Process: ns.engine.Process()}
	for _, c := range containers {
		if _, connected := n.Containers[c.ID]; !connected {
			continue
		}
		one.Sandbox = c.Labels[engine.LabelSandbox]
		if text := c.Labels[engine.LabelNetwork]; text != "" {
			spec := &agboxv1.NetworkSpec{}
			if json.Unmarshal([]byte(text), spec) == nil {
				one.Network = spec
			}
		}
	}
	if one.Sandbox == "" {
		return false, nil
	}
	ns.log.Warn("audit: a network was nobody's by what is on disk and is that of the sandbox which is on it", "network", n.Name, "sandbox_id", one.Sandbox)
	if err := ns.claims.set(n.Name, one); err != nil {
		return true, err
	}
	return true, ns.admit(bridgeOf(n), one.Network)
}

// discard removes a network, whoever is still connected.
func (ns *Networks) discard(ctx context.Context, name string) error {
	n, err := ns.inspect(ctx, name)
	if engine.IsNotFound(err) {
		return ns.forget(name)
	} else if err != nil {
		return err
	}
	if !ns.made(n) {
		return ns.claims.end(name)
	}
	ctx, cancel := ns.engine.Write(ctx)
	defer cancel()
	if err := ns.removeOne(ctx, n); err != nil {
		return err
	}
	return ns.forget(name, subnetsOf(n.IPAM)...)
}

// forget lets go of a network that is not there any more, and of its subnets as far as they are known.
func (ns *Networks) forget(name string, subnets ...netip.Prefix) error {
	bridge, _ := ns.guard.neutral(name)
	ns.guard.release(bridge)
	for _, subnet := range subnets {
		ns.subnets.release(subnet)
	}
	return ns.claims.end(name)
}

func (ns *Networks) inspect(ctx context.Context, name string) (network.Inspect, error) {
	ctx, cancel := ns.engine.Read(ctx)
	defer cancel()
	return ns.engine.NetworkInspect(ctx, name, network.InspectOptions{})
}
