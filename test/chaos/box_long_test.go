//go:build long

package chaos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

// box is a sandbox with one subscription to its events.
type box struct {
	*site
	id     string
	stream *raw.Stream
	told   *checker.Stream
	events []*agboxv1.SandboxEvent
}

// accept has a sandbox created and follows it. It may not be READY yet.
func (s *site) accept(id string) *box {
	s.Helper()
	b := &box{site: s, id: id}
	b.ask(checker.Create)
	b.subscribe()
	return b
}

// create returns READY sandboxes of these names, which are made at once.
func (s *site) create(names ...string) []*box {
	s.Helper()
	var all []*box
	for _, name := range names {
		s.made++
		all = append(all, s.accept(fmt.Sprintf("%s-%d", name, s.made)))
	}
	for _, b := range all {
		b.await(0, agboxv1.EventType_SANDBOX_READY)
	}
	return all
}

// remove deletes sandboxes at once.
func (s *site) remove(all ...*box) {
	s.Helper()
	var before []int
	for _, b := range all {
		before = append(before, b.ask(checker.Delete))
	}
	for i, b := range all {
		b.await(before[i], agboxv1.EventType_SANDBOX_DELETED)
	}
}

// subscribe follows the events after those that are known.
func (b *box) subscribe() {
	b.Helper()
	from := uint64(len(b.events))
	stream, err := b.client.SubscribeSandboxEvents(b.ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: b.id, FromSequence: from})
	b.must(err)
	b.stream, b.told = stream, b.record.Stream(b.id, from)
}

// replay subscribes anew, from the beginning, and is told again what is known; the checker compares.
func (b *box) replay() {
	b.Helper()
	stream, err := b.client.SubscribeSandboxEvents(b.ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: b.id})
	b.must(err)
	defer stream.Close()
	told := b.record.Stream(b.id, 0)
	for range b.events {
		event, err := stream.Recv()
		b.must(err)
		told.Add(event)
	}
}

// find returns the first event after the first n for which ok holds, waiting for it.
func (b *box) find(n int, what string, ok func(*agboxv1.SandboxEvent) bool) *agboxv1.SandboxEvent {
	b.Helper()
	for i := n; ; i++ {
		if i == len(b.events) {
			event, err := b.stream.Recv()
			if err != nil {
				b.Fatalf("%s came to no %s after %v: %v", b.id, what, b.events, err)
			}
			b.told.Add(event)
			b.events = append(b.events, event)
		}
		if ok(b.events[i]) {
			return b.events[i]
		}
		if b.events[i].EventType == agboxv1.EventType_SANDBOX_FAILED {
			b.Fatalf("%s failed before %s: %v", b.id, what, b.events[i])
		}
	}
}

func (b *box) await(n int, kind agboxv1.EventType) *agboxv1.SandboxEvent {
	b.Helper()
	return b.find(n, kind.String(), func(e *agboxv1.SandboxEvent) bool { return e.EventType == kind })
}

// ask asks for an operation, which must be accepted, and returns how many events there were before it.
func (b *box) ask(op checker.Operation) (before int) {
	b.Helper()
	before = len(b.events)
	b.record.Ask(b.id, op)
	var err error
	switch op {
	case checker.Create:
		_, err = b.client.CreateSandbox(b.ctx, &agboxv1.CreateSandboxRequest{SandboxId: b.id, CreateSpec: &agboxv1.CreateSpec{
			Image: b.image, Mounts: []*agboxv1.MountSpec{{Source: b.gate, Target: "/gate", Writable: true}},
		}})
	case checker.Stop:
		_, err = b.client.StopSandbox(b.ctx, &agboxv1.StopSandboxRequest{SandboxId: b.id})
	case checker.Resume:
		_, err = b.client.ResumeSandbox(b.ctx, &agboxv1.ResumeSandboxRequest{SandboxId: b.id})
	case checker.Delete:
		_, err = b.client.DeleteSandbox(b.ctx, &agboxv1.DeleteSandboxRequest{SandboxId: b.id})
	}
	b.must(err)
	b.record.Accepted(b.id, op)
	return before
}

// do asks for an operation and waits for its good end.
func (b *box) do(op checker.Operation) {
	b.Helper()
	b.await(b.ask(op), map[checker.Operation]agboxv1.EventType{
		checker.Stop: agboxv1.EventType_SANDBOX_STOPPED, checker.Resume: agboxv1.EventType_SANDBOX_READY,
		checker.Delete: agboxv1.EventType_SANDBOX_DELETED,
	}[op])
}

// command counts to 2000, waits at the gate half way, and exits with 7.
type command struct {
	box       *box
	id        string
	there, on *os.File
}

// start starts a command and returns once it waits at the gate.
func (b *box) start() *command {
	b.Helper()
	b.made++
	c := &command{box: b, id: fmt.Sprintf("run-%d", b.made)}
	c.there, c.on = c.fifo(".there"), c.fifo(".on")
	b.record.AskExec(b.id, c.id, checker.Want{ExitCode: 7, Stdout: 2000, Stderr: 3})
	script := `seq 1 1000; echo >/gate/$0.there; read on </gate/$0.on; seq 1001 2000; seq 1 3 >&2; exit 7`
	_, err := b.client.CreateExec(b.ctx, &agboxv1.CreateExecRequest{SandboxId: b.id, ExecId: c.id, Command: []string{"sh", "-c", script, c.id}})
	b.must(err)
	b.record.AcceptedExec(b.id, c.id)
	deadline, _ := b.ctx.Deadline()
	b.must(c.there.SetReadDeadline(deadline))
	if _, err := c.there.Read(make([]byte, 1)); err != nil {
		b.Fatalf("%s does not come to the gate: %v", c.id, err)
	}
	return c
}

// fifo makes a pipe at the gate. It is open both ways, so that opening it waits for nobody.
func (c *command) fifo(suffix string) *os.File {
	c.box.Helper()
	path := filepath.Join(c.box.gate, c.id+suffix)
	c.box.must(unix.Mkfifo(path, 0o666))
	c.box.must(os.Chmod(path, 0o666))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	c.box.must(err)
	c.box.Cleanup(func() { file.Close() })
	return file
}

// ended waits for the command's end, which may come after the sandbox's failure.
func (c *command) ended() *agboxv1.SandboxEvent {
	c.box.Helper()
	return c.box.find(0, "end of "+c.id, func(e *agboxv1.SandboxEvent) bool {
		return e.GetExec().GetExecId() == c.id && e.EventType != agboxv1.EventType_EXEC_STARTED
	})
}

// pass lets the command on.
func (c *command) pass() {
	c.box.Helper()
	_, err := c.on.WriteString("\n")
	c.box.must(err)
}

// finished waits for an end with the command's own exit code. That its output is whole is the checker's to find.
func (c *command) finished() {
	c.box.Helper()
	if end := c.ended(); end.EventType != agboxv1.EventType_EXEC_FINISHED || end.GetExec().GetExitCode() != 7 {
		c.box.Errorf("%s ended with %v", c.id, end)
	}
}

// run runs a command from its start to its end.
func (b *box) run() *command {
	b.Helper()
	c := b.start()
	c.pass()
	c.finished()
	return c
}

// died waits for the failure of a sandbox whose primary has ended, and checks that it says why.
func (b *box) died(why string) {
	b.Helper()
	phase := b.await(0, agboxv1.EventType_SANDBOX_FAILED).GetSandboxPhase()
	if phase.ErrorCode != "CONTAINER_NOT_RUNNING" || !strings.Contains(phase.ErrorMessage, why) {
		b.Errorf("%s failed with %v, want %q in it", b.id, phase, why)
	}
}
