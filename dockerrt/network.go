package dockerrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/docker/docker/api/types/network"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// networked reports whether the sandbox has a network at all: what may reach nothing and has no services has none.
func networked(spec *agboxv1.CreateSpec) bool {
	return spec.GetNetwork().GetMode() != modeNone || len(spec.RequiredServices)+len(spec.OptionalServices) > 0
}

// createNetwork makes the sandbox's network on a subnet of its own and returns its id, "" for a sandbox that has none. The
// packet rules come into force meanwhile; nothing is on the network before it returns.
func (d *Docker) createNetwork(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (id string, err error) {
	if !networked(spec) {
		return "", nil
	}
	defer step(ctx, "made", "network %s", networkName(sandboxID))(&err)
	ctx, cancel := d.write(ctx)
	defer cancel()
	protected := make(chan error, 1)
	go func() { protected <- d.enter(ctx) }()
	id, subnet, err := d.makeNetwork(ctx, sandboxID, spec)
	if entered := <-protected; err == nil {
		err = entered
	}
	if id == "" {
		d.leave()
		return "", err
	}
	if err == nil && restricted(spec) {
		err = d.restrict(subnet, spec.Network)
	}
	if err == nil {
		err = d.reachable(id)
	}
	return id, err
}

func restricted(spec *agboxv1.CreateSpec) bool {
	mode := spec.GetNetwork().GetMode()
	return mode == modeNone || mode == modeAllow
}

func (d *Docker) makeNetwork(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (string, netip.Prefix, error) {
	labels := d.labels(sandboxID, componentNetwork, spec.Labels)
	if restricted(spec) {
		text, err := json.Marshal(spec.Network)
		if err != nil {
			return "", netip.Prefix{}, err
		}
		labels[labelNetwork] = string(text)
	}
	for {
		subnet, err := d.subnets.take()
		if err != nil {
			return "", subnet, err
		}
		created, err := d.api.NetworkCreate(ctx, networkName(sandboxID), network.CreateOptions{
			Driver:   "bridge",
			Internal: spec.GetNetwork().GetMode() == modeNone,
			Labels:   labels,
			IPAM:     &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet.String()}}},
		})
		switch {
		case err == nil:
			return created.ID, subnet, nil
		case strings.Contains(err.Error(), "overlap"):
			// Somebody else's since we looked: it stays taken, and another one is tried.
			tell(ctx, "network %s: subnet %s is taken: %v", networkName(sandboxID), subnet, err)
		default:
			d.subnets.release(subnet)
			return "", subnet, fmt.Errorf("cannot create network %s: %w", networkName(sandboxID), err)
		}
	}
}

// removeNetworks removes every network of the sandbox but the one with the id keep, whoever is still connected.
func (d *Docker) removeNetworks(ctx context.Context, sandboxID, keep string) error {
	networks, err := d.api.NetworkList(ctx, network.ListOptions{Filters: d.mine(sandboxID)})
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
		if err != nil && !isNotFound(err) {
			tell(ctx, "network %s is in use and not removed at once: %v", n.Name, err)
			err = d.evict(ctx, n.ID, n.Name)
		}
		if isNotFound(err) {
			err = nil
		}
		stepped(ctx, began, err, "removed", "network %s", n.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, subnet := range subnetsOf(n.IPAM) {
			d.release(subnet, n.Labels[labelNetwork] != "")
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
		if err := d.api.NetworkDisconnect(ctx, id, container, true); err != nil && !isNotFound(err) {
			d.log.Warn("cannot disconnect from a network", "network", name, "container", endpoint.Name, "error", err)
		}
	}
	if err := d.api.NetworkRemove(ctx, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("cannot remove network %s, held by %v: %w", name, holders, err)
	}
	return nil
}
