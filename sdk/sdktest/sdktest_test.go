package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// TestDaemon: what a program's test can rely on beside the daemon's own promises.
func TestDaemon(t *testing.T) {
	d, socket := sdktest.Start(t)
	c, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if _, err := c.CreateSandbox(ctx, sdk.Spec{}); err == nil || !errors.Is(err, sdk.ErrInvalidArgument) || errorReason(err) != "IMAGE_REQUIRED" {
		t.Errorf("a create without an image is refused with %v", err)
	}
	box, err := c.CreateSandbox(ctx, sdk.Spec{Image: "debian", Env: map[string]string{"GREETING": "hello"}})
	if err != nil {
		t.Fatal(err)
	}

	// A process of this machine, with the sandbox's environment.
	if r, err := c.Run(ctx, box.ID, []string{"sh", "-c", "echo $GREETING; echo oops >&2; exit 3"}); err != nil || r.ExitCode != 3 || string(r.Stdout) != "hello\n" || string(r.Stderr) != "oops\n" {
		t.Errorf("a process: %+v, %v", r, err)
	}

	// A command that the test plays, with input, over a restart of the daemon.
	d.OnCommand(func(ctx context.Context, command *sdktest.Command) int {
		text, _ := io.ReadAll(command.Stdin)
		fmt.Fprintf(command.Stdout, "%s got %s", command.Request.Command[0], text)
		return 4
	})
	exec, err := c.CreateExec(ctx, box.ID, []string{"agent"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	a, err := c.AttachExec(ctx, exec.ID, sdk.WithOutput(&out, nil), sdk.WithOutputFrom(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(a, "some "); err != nil {
		t.Error(err)
	}
	d.Shutdown()
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(a, "input"); err != nil {
		t.Error(err)
	}
	if err := a.CloseStdin(); err != nil {
		t.Error(err)
	}
	if exec, err = a.Wait(); err != nil || exec.ExitCode != 4 || out.String() != "agent got some input" {
		t.Errorf("a played command: %+v, %v, wrote %q", exec, err, out.String())
	}

	// A snapshot, and a step that fails.
	kept, err := c.Snapshot(ctx, box.ID, sdk.SnapshotRequest{ID: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.CreateSandbox(ctx, sdk.Spec{}, sdk.FromSnapshot(kept.ID)); err != nil || again.State != sdk.StateReady {
		t.Errorf("from a snapshot: %+v, %v", again, err)
	}
	d.OnStep(func(_ context.Context, step string) error { return errors.New("the disk is full at " + step) })
	if _, err := c.CreateSandbox(ctx, sdk.Spec{Image: "debian"}, sdk.WithSandboxID("unlucky")); err == nil || !strings.Contains(err.Error(), "the disk is full at create unlucky") {
		t.Errorf("a step that fails: %v", err)
	}
}

func errorReason(err error) string {
	if refused, ok := errors.AsType[*sdk.Error](err); ok {
		return refused.Reason
	}
	return ""
}
