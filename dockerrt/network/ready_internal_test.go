package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/queue"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// host is the networks of one data directory, over several lives of their daemon. Nothing is done by itself: tend does it.
type host struct {
	*testing.T
	*Networks
	instance string
	config   Config
}

var hosts atomic.Uint32

func newHost(t *testing.T, size int) *host {
	t.Helper()
	t.Parallel()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: what the kernel tracks is looked at")
	}
	n := hosts.Add(1)
	h := &host{T: t, instance: fmt.Sprintf("networks-%d-%d", os.Getpid(), n), config: Config{
		Pool: netip.MustParsePrefix(fmt.Sprintf("10.219.%d.0/24", (os.Getpid()*11+int(n))%256)), SubnetBits: 28, Ready: size, Dir: t.TempDir()}}
	h.open()
	t.Cleanup(func() {
		for id := range h.claims.of {
			h.must(h.Remove(context.Background(), id, ""))
		}
		h.Drain()
		h.engine.Abort()
		h.must(h.Networks.Close())
		if left := h.list(); len(left) > 0 {
			t.Errorf("networks are left: %v", left)
		}
		h.must(h.engine.Close())
	})
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) open() {
	h.Helper()
	api, err := engine.Connect(context.Background(), "", engine.Owner{Instance: h.instance, PID: os.Getpid(), Started: time.Now()})
	h.must(err)
	h.Networks, err = Open(context.Background(), api, queue.New(1), h.config, slog.New(slog.NewTextHandler(h.Output(), nil)))
	h.must(err)
	h.ready.cancel()
	h.ready.work.Wait()
}

// kill is the end of a daemon that does nothing any more, and the start of the next.
func (h *host) kill() {
	h.Helper()
	h.engine.Abort()
	h.guard.watching.Wait()
	h.must(h.engine.Close())
	h.open()
}

// tend does what there is to do.
func (h *host) tend() {
	h.Helper()
	h.must(h.Networks.tend(context.Background()))
}

// list returns the names of all networks of this instance.
func (h *host) list() []string {
	h.Helper()
	list, err := h.engine.NetworkList(context.Background(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", engine.LabelInstance+"="+h.instance))})
	h.must(err)
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// take gives the sandbox a network and returns its name and id.
func (h *host) take(sandboxID string) (name, id string) {
	h.Helper()
	spec := &agboxv1.CreateSpec{}
	h.must(h.Claim(context.Background(), sandboxID, spec))
	id, err := h.Create(context.Background(), sandboxID, spec)
	h.must(err)
	return h.Networks.Name(sandboxID), id
}

// inhabit runs a container on the network until the test has it removed.
func (h *host) inhabit(name string) (remove func()) {
	h.Helper()
	ctx := context.Background()
	id := h.container(name, "old", "sleep", "600")
	gone := false
	remove = func() {
		if !gone {
			gone = true
			h.must(h.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}))
		}
	}
	h.Cleanup(remove)
	h.must(h.engine.ContainerStart(ctx, id, container.StartOptions{}))
	return remove
}

// container makes one that has a name on the network, and asks no name server elsewhere.
func (h *host) container(name, alias string, command ...string) (id string) {
	h.Helper()
	made, err := h.engine.ContainerCreate(context.Background(), &container.Config{Image: dockertest.TinyImage(h.T, h.engine.Client, dockertest.Busybox), Cmd: command},
		&container.HostConfig{NetworkMode: container.NetworkMode(name), DNS: []string{nobody}, DNSOptions: []string{"timeout:1", "attempts:1"}},
		&network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{name: {Aliases: []string{alias}}}}, nil, "")
	h.must(err)
	return made.ID
}

// knows reports whether a name resolves on the network, where that of the container which asks does.
func (h *host) knows(network, name string) bool {
	h.Helper()
	id := h.container(network, "new", "sh", "-c", "ping -4 -c 1 -W 10 new || exit 3; ping -4 -c 1 -W 10 "+name)
	defer func() {
		h.must(h.engine.ContainerRemove(context.Background(), id, container.RemoveOptions{Force: true}))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended, errs := h.engine.ContainerWait(ctx, id, container.WaitConditionNextExit)
	h.must(h.engine.ContainerStart(ctx, id, container.StartOptions{}))
	select {
	case end := <-ended:
		if end.StatusCode == 3 {
			h.Error("no name resolves on the network")
		}
		return end.StatusCode == 0
	case err := <-errs:
		h.Fatal(err)
		return false
	}
}

// track has the kernel remember a connection of an address of the network, and returns how many it remembers of it.
func (h *host) track(name string) (tracked func() int) {
	h.Helper()
	n, err := h.inspect(context.Background(), name)
	h.must(err)
	subnet := subnetsOf(n.IPAM)[0]
	last := subnet.Addr().As4()
	last[3] += 10 // no container's: the engine itself forgets those
	from, to := net.IP(last[:]), net.IPv4(192, 0, 2, 7).To4()
	h.must(netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 600,
		Forward: netlink.IPTuple{SrcIP: from, DstIP: to, Protocol: unix.IPPROTO_UDP, SrcPort: 1000, DstPort: 2000},
		Reverse: netlink.IPTuple{SrcIP: to, DstIP: from, Protocol: unix.IPPROTO_UDP, SrcPort: 2000, DstPort: 1000}}))
	return func() (n int) {
		var flows []*netlink.ConntrackFlow
		err := error(netlink.ErrDumpInterrupted)
		for errors.Is(err, netlink.ErrDumpInterrupted) {
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		}
		h.must(err)
		for _, flow := range flows {
			if flow.Forward.SrcIP.Equal(from) && flow.Forward.DstIP.Equal(to) { // the host says things on the bridge, too
				n++
			}
		}
		return n
	}
}

func (h *host) count(ready, claims int) {
	h.Helper()
	if got := h.ready.count(); got != ready {
		h.Errorf("%d networks are ready, want %d", got, ready)
	}
	if got := h.claims.all(); len(got) != claims {
		h.Errorf("claims are %v, want %d", got, claims)
	}
	if got := h.list(); len(got) != ready+claims {
		h.Errorf("networks are %v, want %d", got, ready+claims)
	}
}

// TestGivenOn: the network of a removed sandbox is the next one's, and nothing of the first is in it.
func TestGivenOn(t *testing.T) {
	h := newHost(t, 1)
	name, id := h.take("one")
	bridge := bridgeOf(network.Summary{Name: name, Driver: "bridge", Options: map[string]string{optionBridge: name[len(engine.NetworkPrefix):]}})
	n, err := h.inspect(t.Context(), name)
	if err != nil || n.Labels[engine.LabelSandbox] != "" || n.Labels[engine.LabelPool] == "" || name == engine.NetworkName("one") {
		t.Errorf("network %s has labels %v: %v", name, n.Labels, err)
	}
	if !slices.Contains(h.guard.rules.Admitted(), bridge) {
		t.Error("the sandbox's bridge reaches nothing")
	}
	leave := h.inhabit(name)
	tracked := h.track(name)
	if !h.knows(name, "old") {
		t.Error("the sandbox does not know its own names")
	}
	leave()
	h.must(h.Remove(t.Context(), "one", ""))
	if h.Claimed("one") || tracked() == 0 {
		t.Errorf("claimed after its removal: %t; %d connections", h.Claimed("one"), tracked())
	}
	h.must(h.tendOne(t.Context()))
	h.count(1, 0)
	if tracked() > 0 || slices.Contains(h.guard.rules.Admitted(), bridge) || h.guard.rules.Verify() != nil {
		t.Errorf("the ready network has %d connections, admitted %v, rules: %v", tracked(), h.guard.rules.Admitted(), h.guard.rules.Verify())
	}
	if again, same := h.take("two"); again != name || same != id {
		t.Errorf("the next has %s, not %s", again, name)
	}
	if n, err := h.inspect(t.Context(), name); err != nil || len(n.Containers) > 0 {
		t.Errorf("on it are %v: %v", n.Containers, err)
	}
	if h.knows(name, "old") {
		t.Error("a name of the first still resolves")
	}
	h.tend() // one is made ahead
	h.count(1, 1)
}

// TestInDoubt: a network that is not as it was made is removed and nobody's.
func TestInDoubt(t *testing.T) {
	for name, alter := range map[string]func(h *host, name string){
		"somebody is on it": func(h *host, name string) { h.inhabit(name) },
		"another address": func(h *host, name string) {
			link, err := netlink.LinkByName(name[len(engine.NetworkPrefix):])
			h.must(err)
			address, err := netlink.ParseAddr("192.0.2.1/32")
			h.must(err)
			h.must(netlink.AddrAdd(link, address))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1)
			name, _ := h.take("one")
			alter(h, name)
			h.must(h.Remove(t.Context(), "one", ""))
			h.must(h.tendOne(t.Context()))
			h.count(0, 0)
		})
	}
}

// TestKilled: wherever a daemon ends, a network is that of one sandbox or is ready, and none is forgotten.
func TestKilled(t *testing.T) {
	h := newHost(t, 2)
	spec := &agboxv1.CreateSpec{}
	h.must(h.Claim(t.Context(), "claimed", spec)) // and nothing made
	h.kill()
	if !h.Claimed("claimed") {
		t.Error("the claim is lost")
	}
	objects := map[string]bool{}
	h.Inventory(nil, objects)
	if another, there := objects["claimed"]; !there || !another {
		t.Errorf("the claim is not among the sandboxes' objects: %v", objects)
	}
	h.must(h.Remove(t.Context(), "claimed", ""))
	h.tend()
	h.count(0, 0) // nobody has needed one in this life

	name, _ := h.take("made")
	leave := h.inhabit(name)
	h.tend()
	h.kill()
	h.tend()
	h.count(2, 1)
	if h.Networks.Name("made") != name {
		t.Errorf("the sandbox has %s, not %s", h.Networks.Name("made"), name)
	}
	leave()
	h.must(h.Remove(t.Context(), "made", ""))
	h.kill()
	h.tend()
	h.count(2, 0)

	// What an engine makes for a daemon that has died: nobody knows its name.
	unknown := h.guard.newName()
	bridge, _ := h.guard.neutral(unknown)
	_, err := h.make(t.Context(), unknown, request{bridge: bridge, labels: h.engine.PoolLabels()})
	h.must(err)
	h.Appeared(unknown)
	h.tend()
	h.count(2, 0)
}

// TestPruned: a network that somebody removed who saw nobody on it is not given away.
func TestPruned(t *testing.T) {
	h := newHost(t, 1)
	h.take("one")
	h.tend()
	spare := h.ready.spare[0]
	h.must(h.engine.NetworkRemove(t.Context(), spare)) // as docker network prune does
	if name, _ := h.take("two"); name == spare {
		t.Error("a network that is gone was given away")
	}
	h.tend()
	h.count(1, 2)
}

// TestNotNoted: a network that cannot be noted as returned is removed at once, and its sandbox goes all the same.
func TestNotNoted(t *testing.T) {
	h := newHost(t, 1)
	h.take("one")
	h.must(os.RemoveAll(h.config.Dir)) // as good as a disk that is full
	h.must(h.Remove(t.Context(), "one", ""))
	h.count(0, 0)
	if err := h.Claim(t.Context(), "two", &agboxv1.CreateSpec{}); err == nil {
		t.Error("a network was given away, and nothing notes that")
	}
	h.must(os.Mkdir(h.config.Dir, 0o700))
	h.take("two")
	h.tend()
	h.count(1, 1)
}

// TestRelinquished: at the end of the pool of subnets nobody waits for those of networks that are ready.
func TestRelinquished(t *testing.T) {
	h := newHost(t, 2)
	h.subnets.pool = netip.PrefixFrom(h.subnets.pool.Addr(), 27) // two subnets
	h.ready.begin()
	h.tend()
	h.count(2, 0)
	internal := &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: ModeNone}, RequiredServices: []*agboxv1.ServiceSpec{{Name: "db"}}}
	h.must(h.Claim(t.Context(), "internal", internal))
	if _, err := h.Create(t.Context(), "internal", internal); err != nil || h.Networks.Name("internal") != engine.NetworkName("internal") {
		t.Errorf("network %s: %v", h.Networks.Name("internal"), err)
	}
	h.must(h.Remove(t.Context(), "internal", ""))
}
