package dockerrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

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
		return &agboxv1.NetworkSpec{Mode: modeNone}
	}
	return spec
}

// networked reports whether the sandbox has a network at all: what may reach nothing and has no services has none.
func networked(spec *agboxv1.CreateSpec) bool {
	return spec.GetNetwork().GetMode() != modeNone || len(spec.RequiredServices)+len(spec.OptionalServices) > 0
}

// createNetwork makes the sandbox's network on a subnet of its own and returns its id, "" for a sandbox that has none.
// Nothing is on the network before the packet rules know of it.
func (d *Docker) createNetwork(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id string, err error) {
	if !networked(spec) {
		return "", nil
	}
	defer oplog.Step(ctx, "made", "network %s", engine.NetworkName(sandboxID))(&err)
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	id, bridge, err := d.makeNetwork(ctx, sandboxID, spec)
	if err != nil {
		return "", err
	}
	return id, d.admit(bridge, spec.Network)
}

// admitAgain has the packet rules hold for the networks of a sandbox that is about to be started again.
func (d *Docker) admitAgain(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.api.Mine(sandboxID)})
	if err != nil {
		return fmt.Errorf("cannot list networks: %w", err)
	}
	for _, n := range networks {
		if err := d.admit(bridgeOf(n), spec.Network); err != nil {
			return err
		}
	}
	return nil
}

func (d *Docker) makeNetwork(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id, bridge string, err error) {
	labels := d.api.Labels(sandboxID, engine.ComponentNetwork, spec.Labels)
	if spec.Network != nil {
		text, err := json.Marshal(spec.Network)
		if err != nil {
			return "", "", err
		}
		labels[engine.LabelNetwork] = string(text)
	}
	ipv6 := false // whatever the engine's default is
	bridge = d.guard.rules.Bridge()
	for {
		subnet, err := d.subnets.take()
		if err != nil {
			return "", "", err
		}
		created, err := d.api.NetworkCreate(ctx, engine.NetworkName(sandboxID), network.CreateOptions{
			Driver:     "bridge",
			EnableIPv6: &ipv6,
			Internal:   spec.GetNetwork().GetMode() == modeNone,
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
			d.subnets.release(subnet)
			return "", "", fmt.Errorf("cannot create network %s: %w", engine.NetworkName(sandboxID), err)
		}
	}
}

// removeNetworks removes every network of the sandbox but the one with the id keep, whoever is still connected.
func (d *Docker) removeNetworks(ctx context.Context, sandboxID, keep string) error {
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.api.Mine(sandboxID)})
	if err != nil {
		return fmt.Errorf("cannot list networks: %w", err)
	}
	var errs []error
	for _, n := range networks {
		if n.ID == keep {
			continue
		}
		began := time.Now()
		err := d.api.NetworkRemove(ctx, n.ID)
		if err != nil && !engine.IsNotFound(err) {
			oplog.Printf(ctx, "network %s is in use and not removed at once: %v", n.Name, err)
			err = d.evict(ctx, n.ID, n.Name)
		}
		if engine.IsNotFound(err) {
			err = nil
		}
		oplog.Stepped(ctx, began, err, "removed", "network %s", n.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.guard.release(bridgeOf(n))
		for _, subnet := range subnetsOf(n.IPAM) {
			d.subnets.release(subnet)
		}
	}
	return errors.Join(errs...)
}

// evict disconnects by force what still holds the network, and says who it was when that does not help.
func (d *Docker) evict(ctx context.Context, id, name string) error {
	n, err := d.api.NetworkInspect(ctx, id, network.InspectOptions{})
	if err != nil {
		return err
	}
	var holders []string
	for container, endpoint := range n.Containers {
		holders = append(holders, endpoint.Name)
		if err := d.api.NetworkDisconnect(ctx, id, container, true); err != nil && !engine.IsNotFound(err) {
			d.log.Warn("cannot disconnect from a network", "network", name, "container", endpoint.Name, "error", err)
		}
	}
	if err := d.api.NetworkRemove(ctx, id); err != nil && !engine.IsNotFound(err) {
		return fmt.Errorf("cannot remove network %s, held by %v: %w", name, holders, err)
	}
	return nil
}
