// Package network gives each sandbox a network of its own: a bridge, a subnet of the daemon's pool that overlaps nothing, and the
// packet rules that its spec asks for. It knows the engine's client and nothing of containers.
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
}

// Networks makes and removes the networks of sandboxes, and keeps the packet rules as what exists wants them.
type Networks struct {
	engine  *engine.Client
	config  Config
	log     *slog.Logger
	subnets *subnets
	guard   *guard
}

// Open learns which subnets are taken and puts the packet rules in force. Close it after engine.Client.Abort.
func Open(ctx context.Context, api *engine.Client, config Config, log *slog.Logger) (*Networks, error) {
	networks, err := api.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("dockerrt: cannot list networks: %w", err)
	}
	ns := &Networks{engine: api, config: config, log: log, subnets: newSubnets(config.Pool, config.SubnetBits, networks)}
	return ns, ns.openGuard(networks)
}

// Close lets the packet rules be, as long as there are any networks of ours.
func (ns *Networks) Close() error { return ns.guard.close() }

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

// specOf is what the network's sandbox may reach, as its label has it. What cannot be read may reach nothing.
func specOf(n network.Summary) *agboxv1.NetworkSpec {
	text, there := n.Labels[engine.LabelNetwork]
	if !there {
		return nil
	}
	spec := &agboxv1.NetworkSpec{}
	if json.Unmarshal([]byte(text), spec) != nil {
		return &agboxv1.NetworkSpec{Mode: ModeNone}
	}
	return spec
}

// Networked reports whether the sandbox has a network at all: what may reach nothing and has no services has none.
func Networked(spec *agboxv1.CreateSpec) bool {
	return spec.GetNetwork().GetMode() != ModeNone || len(spec.RequiredServices)+len(spec.OptionalServices) > 0
}

// Create makes the sandbox's network on a subnet of its own and returns its id, "" for a sandbox that has none.
// Nothing is on the network before the packet rules know of it.
func (ns *Networks) Create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id string, err error) {
	if !Networked(spec) {
		return "", nil
	}
	defer oplog.Step(ctx, "made", "network %s", engine.NetworkName(sandboxID))(&err)
	ctx, cancel := ns.engine.Write(ctx)
	defer cancel()
	id, bridge, err := ns.make(ctx, sandboxID, spec)
	if err != nil {
		return "", err
	}
	return id, ns.admit(bridge, spec.Network)
}

// Admit has the packet rules hold for the networks of a sandbox that is about to be started again.
func (ns *Networks) Admit(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	ctx, cancel := ns.engine.Read(ctx)
	defer cancel()
	networks, err := ns.engine.NetworkList(ctx, network.ListOptions{Filters: ns.engine.Mine(sandboxID)})
	if err != nil {
		return fmt.Errorf("cannot list networks: %w", err)
	}
	for _, n := range networks {
		if err := ns.admit(bridgeOf(n), spec.Network); err != nil {
			return err
		}
	}
	return nil
}

func (ns *Networks) make(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id, bridge string, err error) {
	labels := ns.engine.Labels(sandboxID, engine.ComponentNetwork, spec.Labels)
	if spec.Network != nil {
		text, err := json.Marshal(spec.Network)
		if err != nil {
			return "", "", err
		}
		labels[engine.LabelNetwork] = string(text)
	}
	ipv6 := false // whatever the engine's default is
	bridge = ns.guard.rules.Bridge()
	for {
		subnet, err := ns.subnets.take()
		if err != nil {
			return "", "", err
		}
		created, err := ns.engine.NetworkCreate(ctx, engine.NetworkName(sandboxID), network.CreateOptions{
			Driver:     "bridge",
			EnableIPv6: &ipv6,
			Internal:   spec.GetNetwork().GetMode() == ModeNone,
			Labels:     labels,
			Options:    map[string]string{optionBridge: bridge},
			IPAM:       &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet.String()}}},
		})
		switch {
		case err == nil:
			return created.ID, bridge, nil
		case strings.Contains(err.Error(), "overlap"):
			// Somebody else's since we looked: it stays taken, and another one is tried.
			oplog.Printf(ctx, "network %s: subnet %s is taken: %v", engine.NetworkName(sandboxID), subnet, err)
		default:
			ns.subnets.release(subnet)
			return "", "", fmt.Errorf("cannot create network %s: %w", engine.NetworkName(sandboxID), err)
		}
	}
}

// Remove removes every network of the sandbox but the one with the id keep, whoever is still connected.
func (ns *Networks) Remove(ctx context.Context, sandboxID, keep string) error {
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
		err := ns.engine.NetworkRemove(ctx, n.ID)
		if err != nil && !engine.IsNotFound(err) {
			oplog.Printf(ctx, "network %s is in use and not removed at once: %v", n.Name, err)
			err = ns.evict(ctx, n.ID, n.Name)
		}
		if engine.IsNotFound(err) {
			err = nil
		}
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
