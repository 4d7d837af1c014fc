package dockerrt_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	dockernetwork "github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/dockerrt/network"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestSubnetTakenMeanwhile: a subnet that somebody took since the daemon looked is passed over; at the end of the pool
// the create fails with a code and leaves nothing; a removal gives its subnet back.
func TestSubnetTakenMeanwhile(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := dockerrt.New(t.Context(), dockerrt.Config{
		Instance: "instance-of-two-subnets", DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.218.0.0/27"), SubnetBits: 28,
		CreateConcurrency: 2, StopGrace: time.Second, PID: os.Getpid(), Started: time.Now(),
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	foreign, err := engine.NetworkCreate(ctx, "somebody-else", dockernetwork.CreateOptions{
		IPAM: &dockernetwork.IPAM{Config: []dockernetwork.IPAMConfig{{Subnet: "10.218.0.0/28"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.NetworkRemove(ctx, foreign.ID) })

	spec := &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, engine, dockertest.Busybox)}
	const one, two = "subnet-one", "subnet-two"
	for _, id := range []string{one, two} {
		t.Cleanup(func() { d.Remove(ctx, id) })
	}
	subnet := func(id string) string {
		t.Helper()
		made, err := engine.NetworkInspect(ctx, "agbox-net-"+id, dockernetwork.InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.IPAM.Config[0].Subnet
	}
	if _, err := d.Create(ctx, one, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	if got := subnet(one); got != "10.218.0.16/28" {
		t.Errorf("the first network is on %s", got)
	}
	_, err = d.Create(ctx, two, "1", spec, ignore)
	coded, ok := errors.AsType[runtime.CodedError](err)
	if !errors.Is(err, network.ErrPoolExhausted) || !ok || coded.ErrorCode() != "NETWORK_POOL_EXHAUSTED" {
		t.Errorf("without a free subnet the create says %v", err)
	}
	dockertest.Leftovers(t, engine, two)
	if err := d.Remove(ctx, one); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, two, "1", spec, ignore); err != nil {
		t.Fatalf("the subnet was not given back: %v", err)
	}
	if got := subnet(two); got != "10.218.0.16/28" {
		t.Errorf("the network is on %s", got)
	}
}

// TestRemoveSparesOthers: neither a name nor a sandbox's label makes an object ours; only the instance's does.
func TestRemoveSparesOthers(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	d, _ := open(t, "instance-that-removes")
	ctx := context.Background()
	const id = "spared-1"
	image := dockertest.TinyImage(t, engine, dockertest.Busybox)
	theirs := map[string]string{dockertest.SandboxLabel: id, "io.github.1996fanrui.agents-sandbox.instance": "another"}
	var containers []string
	for name, labels := range map[string]map[string]string{"agbox-primary-" + id: nil, "agbox-svc-" + id + "-db": theirs} {
		made, err := engine.ContainerCreate(ctx, &container.Config{Image: image, Labels: labels},
			&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { engine.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}) })
		containers = append(containers, made.ID)
	}
	made, err := engine.NetworkCreate(ctx, "agbox-net-"+id, dockernetwork.CreateOptions{Labels: theirs,
		IPAM: &dockernetwork.IPAM{Config: []dockernetwork.IPAMConfig{{Subnet: "10.254.251.0/28"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.NetworkRemove(ctx, made.ID) })

	if err := d.Remove(ctx, id); err != nil {
		t.Error(err)
	}
	for _, c := range containers {
		if _, err := engine.ContainerInspect(ctx, c); err != nil {
			t.Errorf("a foreign container: %v", err)
		}
	}
	if _, err := engine.NetworkInspect(ctx, made.ID, dockernetwork.InspectOptions{}); err != nil {
		t.Errorf("the foreign network: %v", err)
	}
	// Nor does a create that comes over them anyway, as when they were made since the daemon looked.
	creating, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := d.Create(creating, id, "1", &agboxv1.CreateSpec{Image: image}, ignore); err == nil || creating.Err() != nil {
		t.Errorf("a create over foreign names must be refused, and at once: %v", err)
	}
	for _, c := range containers {
		if _, err := engine.ContainerInspect(ctx, c); err != nil {
			t.Errorf("after a create, a foreign container: %v", err)
		}
	}
	if _, err := engine.NetworkInspect(ctx, made.ID, dockernetwork.InspectOptions{}); err != nil {
		t.Errorf("after a create, the foreign network: %v", err)
	}
}
