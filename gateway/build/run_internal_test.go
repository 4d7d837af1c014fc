package build

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/sdk"
)

// TestUnpackingEnds: what is unpacked for a step, and nothing of it meant for the sandbox, ends with the build.
func TestUnpackingEnds(t *testing.T) {
	t.Parallel()
	b, err := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	endless := b.upload("owner", "hash")
	if err := syscall.Mkfifo(endless, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(endless, os.O_RDWR, 0) // so that its end never comes
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	client, err := sdk.New(sdk.WithSocket(filepath.Join(t.TempDir(), "nobody")))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &run{Builds: b, client: client, build: &Build{Owner: "owner"}, box: "box1", Result: Result{User: "user", Workdir: "/"}}
	if err := r.copy(ctx, "hash", "src", "/dest", "", ""); err == nil {
		t.Error("a copy succeeds whose build is over")
	}
}
