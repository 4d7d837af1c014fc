package chaos

import (
	"context"
	"fmt"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

// longRestarts is how often the daemon is restarted while one command runs.
const longRestarts = 3

// long has one command count seconds for the configured time, with the daemon restarted meanwhile: killed, ended, killed.
// Its client follows from the last event that it was told, and runs a short command after each restart.
func (w *world) long(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	c := w.clients[0]
	c.create(ctx)
	box := c.box.Load()
	if box == nil || !box.await(ctx, func(v view) bool { return v.state == agboxv1.SandboxState_SANDBOX_STATE_READY }) {
		return fmt.Errorf("%w: the sandbox did not become READY", ErrViolations)
	}
	id := box.id + "-long"
	seconds := int(w.config.Long / time.Second)
	w.record.AskExec(box.id, id, checker.Want{ExitCode: 42, Stdout: checker.Lines(seconds)})
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; sleep 1; done; exit 42", seconds)
	_, err := w.client.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: box.id, ExecId: id, Command: []string{"sh", "-c", script}})
	if err != nil {
		return err
	}
	w.record.AcceptedExec(box.id, id)
	for n := range longRestarts {
		if err := w.wait(ctx, w.config.Long/(longRestarts+1)); err != nil {
			return err
		}
		if err := w.restart(ctx, n%2 == 0); err != nil {
			return err
		}
		c.exec(ctx, box)
		w.tell("restart %d of %d; the client has been told %d events\n", n+1, longRestarts, box.current().last)
	}
	if !box.await(ctx, func(v view) bool { return v.ended[id] }) {
		return fmt.Errorf("%w: the end of %s was not told", ErrViolations, id)
	}
	w.tell("%s has ended; the client has been told %d events\n", id, box.current().last)
	if err := w.look(ctx); err != nil {
		return err
	}
	return w.finish(ctx)
}

// restart ends the daemon, as a kill or as a signal does, and starts it again after a moment.
func (w *world) restart(ctx context.Context, kill bool) error {
	if kill {
		if err := w.kill(); err != nil {
			return err
		}
	} else {
		stopping, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := w.Daemon.Stop(stopping); err != nil {
			return err
		}
	}
	w.pause(ctx, w.config.Window)
	return w.start(ctx)
}

func (w *world) wait(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell writes of the run's progress, for whom wants to know.
func (w *world) tell(format string, arguments ...any) {
	if w.config.Progress != nil {
		fmt.Fprintf(w.config.Progress, format, arguments...)
	}
}
