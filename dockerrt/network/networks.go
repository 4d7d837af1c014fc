// Package network gives each sandbox a network of its own: a bridge, a subnet of the daemon's pool that overlaps nothing, and the
// packet rules that its spec asks for. It knows the engine's client and nothing of containers.
//
// # Networks that are ready
//
// An engine takes longer to make and remove a network than a container. So some are made ahead, and the network of a removed
// sandbox is given to another one, once it is as it was made:
//
//	          make                    claim
//	(nothing) ----> spare, bridge "…" -----> a sandbox's
//	   ^              ^                        | Remove: its containers are gone
//	   | discard      | restore                v
//	   +--------------+-------------------- returned
//
// The engine cannot change the name or the labels of a network. So one that many may have bears no sandbox's name, its labels say
// that it is of the pool, and whose it is lies in a file by its name (claims). The order keeps a network from two sandboxes, and
// from being forgotten, wherever a daemon dies:
//
//   - The claim is durable before a container is made for the network. A sandbox whose create is carried on has everything
//     removed first that an earlier try left, and its network is returned.
//   - It is durable that the network is returned once no container is on it, before anybody is told that the sandbox is DELETED.
//     A network that is returned, or claimed by nobody, is looked at before it is spare, also at the next start.
//   - A claim ends when the network is as it was made, or is gone.
//   - A claim of a sandbox that the database does not know is something of it in the runtime, as a container is (Inventory).
//   - Where a claim is lost, the network is that of the sandbox whose containers are on it.
//
// restore removes a network where anything is in doubt: somebody is connected or on the bridge, its addresses are others, the
// kernel still tracks a connection of its subnet, or the packet rules cannot be seen to be what they must be. The bridge of a network
// that is nobody's is in no rule, and such a bridge lets nothing out.
//
// A network that only one sandbox can have bears its name and its label as ever, and is removed with it: one that is internal, one
// with published ports, of which the engine keeps translations, and each when none are to be ready.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/queue"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Config is what the daemon decides about networks.
type Config struct {
	// Pool is the range that networks take their subnets from, SubnetBits their prefix length.
	Pool       netip.Prefix
	SubnetBits int
	// NameServers are those of sandboxes in mode internet, of IPv4 and not on a loopback; none: this host's.
	NameServers []netip.Addr
	// Required refuses to work where sandboxes cannot be kept from the host.
	Required bool
	// Ready is how many networks are kept ready once a sandbox has needed one; with 0 each has its sandbox's name.
	Ready int
	// Dir holds whose the networks are that have no sandbox's name.
	Dir string
}

// Networks makes and removes the networks of sandboxes, and keeps the packet rules as what exists wants them.
type Networks struct {
	engine  *engine.Client
	config  Config
	log     *slog.Logger
	queue   *queue.Queue
	subnets *subnets
	guard   *guard
	claims  *claims
	ready   *ready
}

// Open learns which subnets are taken and which networks are whose, and puts the packet rules in force. What is made and removed
// without anybody waiting takes turns of the queue. Use Drain before engine.Client.Abort, and Close after that.
func Open(ctx context.Context, api *engine.Client, queue *queue.Queue, config Config, log *slog.Logger) (*Networks, error) {
	networks, err := api.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	ns := &Networks{engine: api, config: config, log: log, queue: queue, subnets: newSubnets(config.Pool, config.SubnetBits, networks), ready: newReady(config.Ready)}
	if ns.claims, err = openClaims(config.Dir); err != nil {
		return nil, err
	}
	if err := ns.openGuard(networks); err != nil {
		return ns, err
	}
	ns.adopt(networks)
	ns.startReady()
	return ns, nil
}

// Close lets the packet rules be, as long as there are any networks of ours.
func (ns *Networks) Close() error {
	if ns.ready.cancel != nil {
		ns.ready.cancel()
		ns.ready.work.Wait()
	}
	return ns.guard.close()
}

// Census returns the pool, how many subnets of it are in use, by whomever, and how many there are.
func (ns *Networks) Census() (pool netip.Prefix, used, total uint32) {
	used, total = ns.subnets.census()
	return ns.subnets.pool, used, total
}

// optionBridge is the engine's option that names a network's bridge.
const optionBridge = "com.docker.network.bridge.name"

// bridgeOf is the name of the network's interface on the engine's machine; "" for a network without, or with one that
// other networks may have too.
func bridgeOf(n network.Summary) string {
	name, named := n.Options[optionBridge]
	switch {
	case n.Driver != "bridge" || named && !strings.HasPrefix(n.Name, engine.NetworkPrefix):
		return ""
	case named:
		return name
	}
	return "br-" + n.ID[:12] // the engine's own naming
}

// specOf is what the network's sandbox may reach, if it is a sandbox's. What cannot be read may reach nothing.
func (ns *Networks) specOf(n network.Summary) (spec *agboxv1.NetworkSpec, owned bool) {
	_, neutral := ns.guard.neutral(n.Name)
	if _, claimed := ns.claims.owner(n.Name); neutral && !claimed && n.Labels[engine.LabelSandbox] == "" {
		return nil, false
	}
	spec, err := ns.Reach(n)
	if err != nil {
		return &agboxv1.NetworkSpec{Mode: ModeNone}, true
	}
	return spec, true
}

// Networked reports whether the sandbox has a network at all: what may reach nothing and has no services has none.
func Networked(spec *agboxv1.CreateSpec) bool {
	return spec.GetNetwork().GetMode() != ModeNone || len(spec.RequiredServices)+len(spec.OptionalServices) > 0
}

// Create makes the sandbox's network on a subnet of its own, unless Claim has found one that is ready, and returns its id, "" for
// a sandbox that has none. Nothing is on the network before the packet rules know of it.
func (ns *Networks) Create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id string, err error) {
	if !Networked(spec) {
		return "", nil
	}
	name, done := ns.Name(sandboxID), "made"
	began := time.Now()
	defer func() { oplog.Stepped(ctx, began, err, done, "network %s", name) }()
	bridge, neutral := ns.guard.neutral(name)
	if neutral = neutral && ns.Claimed(sandboxID); neutral {
		n, err := ns.inspect(ctx, name)
		if err == nil {
			done = "taken"
			return n.ID, ns.admit(bridge, spec.Network)
		} else if !engine.IsNotFound(err) {
			return "", err
		}
	}
	wanted := request{bridge: bridge, labels: ns.engine.PoolLabels(), internal: spec.GetNetwork().GetMode() == ModeNone, person: true}
	if !neutral {
		wanted.bridge, wanted.labels = ns.guard.rules.Bridge(), ns.engine.Labels(sandboxID, engine.ComponentNetwork, spec.Labels)
		if wanted.labels[engine.LabelNetwork], err = Label(spec); err != nil {
			return "", err
		} else if spec.Network == nil {
			delete(wanted.labels, engine.LabelNetwork)
		}
	}
	if id, err = ns.make(ctx, name, wanted); err != nil {
		return "", err
	}
	return id, ns.admit(wanted.bridge, spec.Network)
}

// Label is what a sandbox may reach, as engine.LabelNetwork has it.
func Label(spec *agboxv1.CreateSpec) (string, error) {
	text, err := json.Marshal(spec.Network)
	return string(text), err
}

// Admit has the packet rules hold for the networks of a sandbox that is about to be started again.
func (ns *Networks) Admit(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	networks, err := ns.Find(ctx, sandboxID)
	if err != nil {
		return err
	}
	for _, n := range networks {
		if err := ns.admit(bridgeOf(n), spec.Network); err != nil {
			return err
		}
	}
	return nil
}

// request is how a network is to be.
type request struct {
	bridge   string
	labels   map[string]string
	internal bool
	// person: somebody waits for it, so that it may have the subnet of one that is ready.
	person bool
}

// make makes a network and returns its id.
func (ns *Networks) make(ctx context.Context, name string, want request) (id string, err error) {
	ctx, cancel := ns.engine.Write(ctx)
	defer cancel()
	ipv6 := false // whatever the engine's default is
	for {
		subnet, err := ns.subnets.take()
		if errors.Is(err, ErrPoolExhausted) && want.person && ns.relinquish(ctx) {
			continue
		} else if err != nil {
			return "", err
		}
		created, err := ns.engine.NetworkCreate(ctx, name, network.CreateOptions{
			Driver:     "bridge",
			EnableIPv6: &ipv6,
			Internal:   want.internal,
			Labels:     want.labels,
			Options:    map[string]string{optionBridge: want.bridge},
			IPAM:       &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet.String()}}},
		})
		switch {
		case err == nil:
			return created.ID, nil
		case strings.Contains(err.Error(), "overlap"):
			// Somebody else's since we looked: it stays taken, and another one is tried.
			oplog.Printf(ctx, "network %s: subnet %s is taken: %v", name, subnet, err)
		default:
			ns.subnets.release(subnet)
			return "", fmt.Errorf("cannot create network %s: %w", name, err)
		}
	}
}

// Remove removes every network of the sandbox but the one with the id keep, whoever is still connected. One that others may have
// is returned: durably, and looked at later. No container of the sandbox may be there any more.
func (ns *Networks) Remove(ctx context.Context, sandboxID, keep string) error {
	if name, one, has := ns.claims.networkOf(ns.engine.Place(sandboxID)); has && keep == "" {
		one.Returned = true
		began := time.Now()
		err := ns.claims.set(name, one)
		oplog.Stepped(ctx, began, err, "returned", "network %s", name)
		if err == nil {
			ns.ready.add(name)
		} else if err := ns.discard(ctx, name); err != nil { // a full disk keeps no sandbox
			return err
		}
	}
	networks, err := ns.engine.NetworkList(ctx, network.ListOptions{Filters: ns.engine.Mine(sandboxID)})
	if err != nil {
		return fmt.Errorf("cannot list networks: %w", err)
	}
	var errs []error
	for _, n := range networks {
		if n.ID == keep {
			continue
		}
		began := time.Now()
		err := ns.removeOne(ctx, n)
		oplog.Stepped(ctx, began, err, "removed", "network %s", n.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ns.guard.release(bridgeOf(n))
		for _, subnet := range subnetsOf(n.IPAM) {
			ns.subnets.release(subnet)
		}
	}
	return errors.Join(errs...)
}

func (ns *Networks) removeOne(ctx context.Context, n network.Inspect) error {
	err := ns.engine.NetworkRemove(ctx, n.ID)
	if err != nil && !engine.IsNotFound(err) {
		oplog.Printf(ctx, "network %s is in use and not removed at once: %v", n.Name, err)
		err = ns.evict(ctx, n.ID, n.Name)
	}
	if engine.IsNotFound(err) {
		err = nil
	}
	return err
}

// evict disconnects by force what still holds the network, and says who it was when that does not help.
func (ns *Networks) evict(ctx context.Context, id, name string) error {
	n, err := ns.engine.NetworkInspect(ctx, id, network.InspectOptions{})
	if err != nil {
		return err
	}
	var holders []string
	for container, endpoint := range n.Containers {
		holders = append(holders, endpoint.Name)
		if err := ns.engine.NetworkDisconnect(ctx, id, container, true); err != nil && !engine.IsNotFound(err) {
			ns.log.Warn("cannot disconnect from a network", "network", name, "container", endpoint.Name, "error", err)
		}
	}
	if err := ns.engine.NetworkRemove(ctx, id); err != nil && !engine.IsNotFound(err) {
		return fmt.Errorf("cannot remove network %s, held by %v: %w", name, holders, err)
	}
	return nil
}
