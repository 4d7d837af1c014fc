package exec_test

import (
	"io"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// trip is a reader that calls at once, when it has come to a place.
type trip struct {
	io.Reader
	left int
	at   func()
}

func (r *trip) Read(p []byte) (int, error) {
	if r.left > 0 {
		p = p[:min(len(p), r.left)]
	}
	n, err := r.Reader.Read(p)
	if r.left > 0 {
		if r.left -= n; r.left <= 0 {
			r.at()
		}
	}
	return n, err
}

// TestAttachOverRestart: the daemon ends in the middle of a stream of input, while the command reads none, and neither
// input nor output loses or repeats a byte.
func TestAttachOverRestart(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	var mu sync.Mutex
	broken := 0
	client := sdkClient(t, d, sdk.WithBrokenStream(func(error) { mu.Lock(); broken++; mu.Unlock() }))
	exec, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	var out hashed
	reader, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(0, 0), sdk.WithOutput(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := client.AttachExec(t.Context(), exec.ID)
	if err != nil {
		t.Fatal(err)
	}
	reached, restarted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(restarted)
		<-reached
		d.Restart() // while the next piece is under way
	}()
	feedIn(t, writer, &trip{Reader: randomBytes(2, size), left: size / 3, at: func() { close(reached) }})
	<-restarted
	if end, err := writer.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	if _, err := reader.Wait(); err != nil {
		t.Error(err)
	}
	if out.n != size || out.sum(t) != sumOf(t, randomBytes(2, size)) {
		t.Errorf("%d bytes of %d came back, or others", out.n, size)
	}
	mu.Lock()
	defer mu.Unlock()
	if broken == 0 {
		t.Error("the restart was not noticed")
	}
}

// TestAttachRestartInWrite: what a write that stood still had passed on before the daemon ended is known exactly.
func TestAttachRestartInWrite(t *testing.T) {
	t.Parallel()
	const size = 3 << 20 // more than all that lies between
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBackInput(t, d, id)
	away := make(chan struct{}, 100)
	client := sdkClient(t, d, sdk.WithBrokenStream(func(error) { away <- struct{}{} }))
	out := hashed{begun: make(chan struct{}, 1)}
	a, err := client.AttachExec(t.Context(), exec, sdk.WithOutputFrom(0, 0), sdk.WithOutput(&out, nil))
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		feedIn(t, a, randomBytes(3, size))
	}()
	<-out.begun // so that some of the write was taken, and cannot all be
	d.Restart()
	<-away
	release()
	<-written
	if end, err := a.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	if out.n != size || out.sum(t) != sumOf(t, randomBytes(3, size)) {
		t.Errorf("%d bytes of %d came back, or others", out.n, size)
	}
}

// heldBackInput begins a cat that reads one byte of its input, and the rest once release is called.
func heldBackInput(t *testing.T, d *servertest.Daemon, sandboxID string) (execID string, release func()) {
	t.Helper()
	if end, _, stderr := d.Exec(sandboxID, "mkfifo", "/tmp/gate"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	execID = d.Begin(&agboxv1.CreateExecRequest{SandboxId: sandboxID, Stdin: true,
		Command: []string{"sh", "-c", "dd bs=1 count=1 2>/dev/null; read go </tmp/gate; exec cat"}}).ExecId
	return execID, func() {
		t.Helper()
		if end, _, stderr := d.Exec(sandboxID, "sh", "-c", "echo go >/tmp/gate"); end.ExitCode != 0 {
			t.Fatal(stderr)
		}
	}
}
