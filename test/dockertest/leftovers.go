package dockertest

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// SandboxLabel is the label that carries a sandbox's id on each of its Docker objects.
const SandboxLabel = "io.github.1996fanrui.agents-sandbox.sandbox-id"

// Leftovers fails t, naming them, when containers, networks or volumes of the sandbox exist, and then removes them, so
// that one failure does not become the next test's.
func Leftovers(t testing.TB, cli *client.Client, sandboxID string) {
	t.Helper()
	// t's own context has ended when this runs from a cleanup.
	ctx := context.WithoutCancel(t.Context())
	objects, err := Objects(ctx, cli, sandboxID)
	if err != nil {
		t.Errorf("sandbox %s: %v", sandboxID, err)
	}
	for _, o := range objects {
		t.Errorf("sandbox %s left %s", sandboxID, o)
		if err := o.remove(ctx, cli); err != nil {
			t.Errorf("sandbox %s: cannot remove %s: %v", sandboxID, o, err)
		}
	}
}

// Object is a container, a network or a volume of a sandbox.
type Object struct {
	Kind string // "container", "network" or "volume"
	ID   string
	Name string
}

func (o Object) String() string { return o.Kind + " " + o.Name }

func (o Object) remove(ctx context.Context, cli *client.Client) error {
	switch o.Kind {
	case "network":
		return cli.NetworkRemove(ctx, o.ID)
	case "volume":
		return cli.VolumeRemove(ctx, o.ID, false)
	}
	return cli.ContainerRemove(ctx, o.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

// Objects lists what carries the sandbox's label, containers in any state first.
func Objects(ctx context.Context, cli *client.Client, sandboxID string) ([]Object, error) {
	ours := filters.NewArgs(filters.Arg("label", SandboxLabel+"="+sandboxID))
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return nil, err
	}
	networks, err := cli.NetworkList(ctx, network.ListOptions{Filters: ours})
	if err != nil {
		return nil, err
	}
	var list []Object
	for _, c := range containers {
		name := c.ID
		if len(c.Names) > 0 {
			name = c.Names[0][1:]
		}
		list = append(list, Object{Kind: "container", ID: c.ID, Name: name})
	}
	for _, n := range networks {
		list = append(list, Object{Kind: "network", ID: n.ID, Name: n.Name})
	}
	volumes, err := cli.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Volumes {
		list = append(list, Object{Kind: "volume", ID: v.Name, Name: v.Name})
	}
	return list, nil
}
