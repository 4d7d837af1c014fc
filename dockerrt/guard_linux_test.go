package dockerrt_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// withoutNetAdmin runs f where packet rules cannot be set. The thread that lacks the right ends with it.
func withoutNetAdmin(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestWithoutIsolation: it is said, and refused where the configuration requires it.
func TestWithoutIsolation(t *testing.T) {
	dockertest.Engine(t)
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := dockerrt.Config{
		Instance: dir, DataDir: dir, InitPath: dockertest.InitBinary(t),
		Pool: netip.MustParsePrefix("10.219.0.0/24"), SubnetBits: 28, StopGrace: time.Second,
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx := context.Background()
	withoutNetAdmin(t, func() error {
		required := config
		required.IsolationRequired = true
		if d, err := dockerrt.New(ctx, required, log); err == nil {
			d.Close()
			t.Error("it works without the isolation that is required")
		} else if !strings.Contains(err.Error(), "CAP_NET_ADMIN") || !strings.Contains(err.Error(), "isolation.required") {
			t.Errorf("it says %v", err)
		}
		d, err := dockerrt.New(ctx, config, log)
		if err != nil {
			return err
		}
		defer d.Close()
		if isolated, problem := d.Isolated(); isolated || !strings.Contains(problem, "CAP_NET_ADMIN") {
			t.Errorf("isolated: %v, %s", isolated, problem)
		}
		return nil
	})
}

// tables are the daemon's tables of packet rules in the kernel, on this host and of no other daemon.
func tables(t *testing.T, instance string) []*nftables.Table {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(instance))
	var list []*nftables.Table
	for _, table := range all {
		if table.Name == "agbox-"+hex.EncodeToString(sum[:4]) {
			list = append(list, table)
		}
	}
	return list
}

func destroy(t *testing.T, tables []*nftables.Table) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		conn.DelTable(table)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// audits tells of lines of the log in which rules are put back.
type audits struct {
	slog.Handler
	seen chan string
}

func (a audits) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "audit: the packet rules") {
		r.Attrs(func(attr slog.Attr) bool { a.seen <- attr.Value.String(); return true })
	}
	return a.Handler.Handle(ctx, r)
}

func code(err error) string {
	if coded, ok := errors.AsType[runtime.CodedError](err); ok {
		return coded.ErrorCode()
	}
	return ""
}

// TestRulesFollowWhatExists: they are there as long as a sandbox is, whatever is removed twice or has two subnets, come back
// when somebody deletes them, while the daemon runs or not, and go with the last network.
func TestRulesFollowWhatExists(t *testing.T) {
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs CAP_NET_ADMIN")
	}
	engine := dockertest.Engine(t)
	defer engine.Close()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx := context.Background()
	altered := make(chan string, 100)
	start := func() *dockerrt.Docker {
		t.Helper()
		d, err := dockerrt.New(ctx, dockerrt.Config{
			Instance: dir, DataDir: dir, InitPath: dockertest.InitBinary(t), Pool: netip.MustParsePrefix("10.219.0.0/24"), SubnetBits: 28,
			CreateConcurrency: 1, StopGrace: time.Second, PID: os.Getpid(), Started: time.Now(),
		}, slog.New(audits{slog.NewTextHandler(io.Discard, nil), altered}))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	quiet := func(when string) {
		t.Helper()
		if len(altered) > 0 {
			t.Errorf("%s: it says that somebody altered the rules: %s", when, <-altered)
		}
		if len(tables(t, dir)) != 1 {
			t.Fatalf("%s: the table is not there", when)
		}
	}
	d := start()
	defer func() { d.Close() }()
	const id, gone = "rules-1", "rules-2"
	spec := &agboxv1.CreateSpec{
		Image:   dockertest.TinyImage(t, engine, dockertest.Busybox),
		Network: &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "45.0.113.7"}}},
	}
	if _, err := d.Create(ctx, id, "1", spec, ignore); err != nil {
		t.Fatal(err)
	}
	defer func() { d.Remove(ctx, id) }()
	quiet("after a create")

	// A network whose making nobody was told of, with two subnets.
	if _, err := engine.NetworkCreate(ctx, "agbox-net-"+gone, network.CreateOptions{
		Labels: labels(t, engine, id, gone), EnableIPv6: new(true), Options: map[string]string{"com.docker.network.bridge.name": "abtest" + hex.EncodeToString([]byte(dir[len(dir)-4:]))},
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.219.9.0/28"}, {Subnet: "fd00:219::/64"}}},
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := d.Remove(ctx, gone); err != nil {
			t.Error(err)
		}
	}
	quiet("after removals")

	destroy(t, tables(t, dir))
	select {
	case <-altered: // without anybody asking
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody says that the rules were deleted")
	}
	if isolated, problem := d.Isolated(); !isolated {
		t.Error(problem)
	}
	quiet("after a deletion")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	quiet("after the daemon")
	destroy(t, tables(t, dir))
	d = start()
	if said := <-altered; !strings.Contains(said, "there is no table") {
		t.Errorf("after a deletion behind its back it says %q", said)
	}
	quiet("after the daemon's return")

	if err := d.Stop(ctx, id, nil); err != nil {
		t.Fatal(err)
	}
	withoutNetAdmin(t, func() error {
		if _, err := d.Resume(ctx, id, "2", spec, ignore); code(err) != "NETWORK_RESTRICTION_UNAVAILABLE" {
			t.Errorf("resumed without rules: %v", err)
		}
		return nil
	})
	if _, err := d.Resume(ctx, id, "2", spec, ignore); err != nil {
		t.Errorf("with them: %v", err)
	}
	if err := d.Remove(ctx, id); err != nil {
		t.Error(err)
	}
	quiet("without sandboxes")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if left := tables(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left[0].Name)
	}
}

// labels are those of the sandbox's network, for another sandbox's.
func labels(t *testing.T, engine *client.Client, of, sandboxID string) map[string]string {
	t.Helper()
	n, err := engine.NetworkInspect(t.Context(), "agbox-net-"+of, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range n.Labels {
		if value == of {
			n.Labels[name] = sandboxID
		}
	}
	return n.Labels
}
