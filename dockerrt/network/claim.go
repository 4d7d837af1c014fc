package network

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// shared reports whether the sandbox's network is one that others may have had, and may have later.
func (ns *Networks) shared(spec *agboxv1.CreateSpec) bool {
	return ns.config.Ready > 0 && Networked(spec) && spec.GetNetwork().GetMode() != ModeNone && len(spec.Ports) == 0
}

// Claim settles which network the sandbox has, before anything of it is made: one that is ready, or one that Create makes. The
// sandbox may have none yet; see Claimed.
func (ns *Networks) Claim(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	if !ns.shared(spec) {
		return nil
	}
	name := ns.takeReady(ctx)
	if name == "" {
		name = ns.guard.newName()
		ns.ready.hold(name)
	}
	err := ns.claims.set(name, claim{Sandbox: sandboxID, Network: spec.Network, Process: ns.engine.Process()})
	ns.ready.release(name)
	if err != nil {
		ns.ready.add(name)
	}
	ns.ready.begin()
	return err
}

// Claimed reports whether Claim was called for the sandbox, in whichever life of the daemon, and Remove not since.
func (ns *Networks) Claimed(sandboxID string) bool {
	_, _, has := ns.claims.networkOf(ns.engine.Place(sandboxID))
	return has
}

// takeReady makes a network busy that is ready, and that is still there as it was made; "" for none. It leaves the engine a moment
// to say so, and no more.
func (ns *Networks) takeReady(ctx context.Context) string {
	for {
		name := ns.ready.take()
		if name == "" {
			return ""
		}
		n, err := ns.inspect(ctx, name)
		if err == nil && ns.made(n) && len(n.Containers) == 0 {
			return name
		}
		oplog.Printf(ctx, "network %s was ready and is not as it was made: %v", name, err)
		ns.ready.release(name)
		ns.ready.add(name)
	}
}

// Name is the name of the sandbox's network, which need not be there.
func (ns *Networks) Name(sandboxID string) string {
	if name, _, has := ns.claims.networkOf(ns.engine.Place(sandboxID)); has {
		return name
	}
	return engine.NetworkName(ns.engine.Place(sandboxID))
}

// SandboxOf is the sandbox that has the network of this name, as far as it is a name of ours; "" for nobody.
func (ns *Networks) SandboxOf(name string) string {
	if _, neutral := ns.guard.neutral(name); neutral {
		one, _ := ns.claims.owner(name)
		return ns.engine.Tenant(one.Sandbox)
	}
	return ns.engine.Tenant(engine.SandboxOfNetwork(name))
}

// Find returns the networks of the sandbox that are there.
func (ns *Networks) Find(ctx context.Context, sandboxID string) ([]network.Summary, error) {
	ctx, cancel := ns.engine.Read(ctx)
	defer cancel()
	found, err := ns.engine.NetworkList(ctx, network.ListOptions{Filters: ns.engine.Mine(sandboxID)})
	if err != nil {
		return nil, fmt.Errorf("cannot list networks: %w", err)
	}
	if name, _, has := ns.claims.networkOf(ns.engine.Place(sandboxID)); has {
		n, err := ns.inspect(ctx, name)
		switch {
		case err == nil:
			found = append(found, n)
		case !engine.IsNotFound(err):
			return nil, fmt.Errorf("cannot look at network %s: %w", name, err)
		}
	}
	return found, nil
}

// Reach is what the network's sandbox may reach, as its claim or its label has it; nil for the internet.
func (ns *Networks) Reach(n network.Summary) (*agboxv1.NetworkSpec, error) {
	if one, owned := ns.claims.owner(n.Name); owned {
		return one.Network, nil
	}
	text := n.Labels[engine.LabelNetwork]
	if text == "" {
		return nil, nil
	}
	spec := &agboxv1.NetworkSpec{}
	if err := json.Unmarshal([]byte(text), spec); err != nil {
		return nil, fmt.Errorf("label %s of network %s: %w", engine.LabelNetwork, n.Name, err)
	}
	return spec, nil
}

// Inventory adds the sandboxes that have a network, places that are nobody's left out, and whether another process gave it to them, given the engine's networks that
// are ours. Networks that nobody knows are looked at, and ready or gone after that.
func (ns *Networks) Inventory(networks []network.Summary, objects map[string]bool) {
	for _, n := range networks {
		if id := ns.engine.SandboxOf(n.Labels); id != "" && !runtime.IsPlace(id) {
			objects[id] = objects[id] || n.Labels[engine.LabelOwner] != ns.engine.Process()
		}
	}
	ns.adopt(networks)
	for _, one := range ns.claims.all() {
		if id := ns.engine.Tenant(one.Sandbox); !one.Returned && !runtime.IsPlace(id) {
			objects[id] = objects[id] || one.Process != ns.engine.Process()
		}
	}
}

// adopt has networks looked at that were returned, or are nobody's.
func (ns *Networks) adopt(networks []network.Summary) {
	for _, n := range networks {
		if ns.made(n) {
			ns.Appeared(n.Name)
		}
	}
	for name, one := range ns.claims.all() {
		if one.Returned && !ns.ready.knows(name) {
			ns.ready.add(name)
		}
	}
}

// Appeared tells that a network was made, by whomever: an engine finishes what a daemon that died had asked for.
func (ns *Networks) Appeared(name string) {
	if _, neutral := ns.guard.neutral(name); !neutral || ns.ready.knows(name) { // asked first: whoever claims one does so before it is not ready
		return
	}
	if _, held := ns.claims.find(name); !held {
		ns.ready.add(name)
	}
}

// Ready returns how many networks are ready, and how many are to be.
func (ns *Networks) Ready() (ready, kept int) { return ns.ready.count(), ns.ready.size }
