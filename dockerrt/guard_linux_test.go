package dockerrt_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/dockerrt/dockertest"
)

// withoutNetAdmin runs f where packet rules cannot be set. The thread that lacks the right ends with it.
func withoutNetAdmin(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
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
