package exec_test

import (
	"errors"
	"io"
	"os"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestAttachTerminal: a shell is typed at, resized, left, met again, and ended.
func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	exec, err := client.CreateExec(t.Context(), id, []string{"sh"}, sdk.WithTerminal(10, 40), sdk.WithEnv(map[string]string{"PS1": "$ "}))
	if err != nil {
		t.Fatal(err)
	}
	screen := servertest.NewScreen()
	a, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(screen, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !a.Exec().Terminal {
		t.Errorf("got %+v", a.Exec())
	}
	screen.Await(t, `\$ `)
	typeIn(t, a, "stty size; tty\r")
	screen.Await(t, `10 40\r\n/dev/pts/\d+\r\n`)
	if err := a.Resize(33, 122); err != nil {
		t.Fatal(err)
	}
	typeIn(t, a, "stty size\r")
	screen.Await(t, `33 122\r\n`)
	a.Detach()
	if _, err := a.Wait(); !errors.Is(err, sdk.ErrDetached) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, sdk.ErrDetached) {
		t.Errorf("a write after Detach: %v", err)
	}
	stdout, stderr := a.Offsets()
	a, err = client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(stdout, stderr), sdk.WithOutput(screen, nil))
	if err != nil {
		t.Fatal(err)
	}
	typeIn(t, a, "echo a\"\"gain; exit 5\r")
	if end, err := a.Wait(); err != nil || end.ExitCode != 5 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	screen.Await(t, `\nagain\r\n`)
	if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write after the end: %v", err)
	}
	log, err := os.ReadFile(exec.StdoutPath)
	if err != nil || string(log) != screen.Text() {
		t.Errorf("the log is %q, and was seen as %q, %v", log, screen.Text(), err)
	}
}

// TestAttachWithout: the SDK knows by itself what a command does not have.
func TestAttachWithout(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	a, err := client.AttachExec(t.Context(), d.Script(id, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Detach()
	_, err = a.Write([]byte("x"))
	for name, err := range map[string]error{"Write": err, "CloseStdin": a.CloseStdin()} {
		if !errors.Is(err, sdk.ErrStdinNotOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.Resize(1, 1); !errors.Is(err, sdk.ErrNoTerminal) {
		t.Errorf("Resize: %v", err)
	}
	if _, err := client.AttachExec(t.Context(), "never-was"); !errors.Is(err, sdk.ErrExecNotFound) {
		t.Errorf("of no exec: %v", err)
	}
}

func typeIn(t *testing.T, a *sdk.Attachment, keys string) {
	t.Helper()
	if n, err := a.Write([]byte(keys)); err != nil || n != len(keys) {
		t.Fatalf("%d of %q were typed: %v", n, keys, err)
	}
}
