package network_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestReadyNetworks: sandboxes have networks that bear nobody's name, each its own, over a restart too; a daemon that ends leaves
// only those that sandboxes have.
func TestReadyNetworks(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, func(c *dockerrt.Config) { c.ReadyNetworks = 2 })
	networkOf := func(id string) string {
		t.Helper()
		found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
		if err != nil {
			t.Fatal(err)
		}
		return string(found.HostConfig.NetworkMode)
	}
	left := func() (names []string) {
		t.Helper()
		list, err := d.Engine.NetworkList(t.Context(), network.ListOptions{
			Filters: filters.NewArgs(filters.Arg("label", "io.github.1996fanrui.agents-sandbox.instance="+filepath.Base(d.Dir())))})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			names = append(names, n.Name)
		}
		return names
	}
	first := d.Create(&agboxv1.CreateSpec{})
	if name := networkOf(first); strings.Contains(name, first) {
		t.Errorf("network %s names its sandbox", name)
	}
	d.Delete(first)
	one, two := d.Create(&agboxv1.CreateSpec{}), d.Create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Private: true}})
	had := networkOf(one)
	if had == networkOf(two) {
		t.Errorf("%s is the network of two sandboxes", had)
	}
	if info, err := d.Info(t.Context(), &agboxv1.InfoRequest{}); err != nil || info.NetworksKept != 2 || info.EngineSlots == 0 {
		t.Errorf("info is %v: %v", info, err)
	}
	d.Delete(two)
	d.Stop()
	if names := left(); len(names) != 1 || names[0] != had {
		t.Errorf("the daemon has left the networks %v, want that of its sandbox, %s, alone", names, had)
	}
	d.StartAgain()
	if end, _, stderr := d.Exec(one, "ip", "route", "get", "192.0.2.1"); end.ExitCode != 0 || networkOf(one) != had {
		t.Errorf("after a restart its network is %s: %s", networkOf(one), stderr)
	}
	d.Delete(one)
	d.Stop()
	if names := left(); len(names) > 0 {
		t.Errorf("the daemon has left the networks %v", names)
	}
}
