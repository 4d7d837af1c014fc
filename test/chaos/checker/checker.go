// Package checker finds out whether a daemon kept its word. It knows what clients were told, reads what the daemon
// says, what its database and its files hold and what the engine has, and reports where they differ. It shares no
// code with the daemon but the wire messages and the format of a result on disk.
package checker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// Checker checks one daemon's data directory over any number of its lives. Log and Rest belong to one goroutine.
type Checker struct {
	Record *Record
	Client *raw.Client
	// Engine is asked directly, not through what makes faults for the daemon.
	Engine  *client.Client
	DataDir string
	// Services is how many service containers each sandbox has, and Optional how many more it may have.
	Services, Optional int
	// Faults: the engine fails on purpose, so a sandbox may fail without another cause.
	Faults bool
	// Panics: actors panic on purpose, so a sandbox may be given up.
	Panics bool

	// MaxEvents is about how many events of a log the daemon was told to keep, 0 for all: an older one that is not there is
	// no loss. Retention is how long it was told to keep the log of a DELETED sandbox, 0 for ever.
	MaxEvents uint64
	Retention time.Duration

	report *Report
	// unnamed are the images without a name that were found in this life of the daemon, outlived those of the one before.
	unnamed, outlived map[string]bool
	// placed are the places that sandboxes took, by sandbox.
	placed map[string]string
}

// New returns a checker that has found nothing yet.
func New(record *Record, client *raw.Client, engine *client.Client, dataDir string) *Checker {
	return &Checker{Record: record, Client: client, Engine: engine, DataDir: dataDir, report: newReport(), placed: map[string]string{}}
}

// Report returns what was found so far; later checks add to it.
func (c *Checker) Report() *Report { return c.report }

// Rest waits until no operation and no command is under way, as the daemon tells it, and then checks everything.
// No client may be asking for anything meanwhile. A sandbox that has come to no rest when ctx ends is a violation;
// any other failure to look is an error.
func (c *Checker) Rest(ctx context.Context) error {
	known := map[string]agboxv1.SandboxState{}
	for _, id := range c.Record.active() {
		h, err := c.follow(ctx, id)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		known[id] = h.state
		c.judgeRest(id, h)
		if err := c.judgeAnswers(ctx, id, h); err != nil {
			return err
		}
	}
	c.Record.mu.Lock()
	for id, s := range c.Record.sandboxes {
		if s.settled {
			known[id] = deleted
		}
	}
	c.Record.mu.Unlock()
	if err := c.judgeDirectories(known); err != nil {
		return err
	}
	if err := c.awaitEngine(ctx, known); err != nil {
		return err
	}
	return c.awaitSnapshots(ctx, known)
}

// Gone checks that nothing is left of sandboxes that are DELETED, whatever happened to them, nor of snapshots, and that the
// daemon has nothing else.
func (c *Checker) Gone(ctx context.Context, ids []string) error {
	known := map[string]agboxv1.SandboxState{}
	for _, id := range ids {
		known[id] = deleted
	}
	if err := c.judgeDirectories(known); err != nil {
		return err
	}
	if err := c.awaitEngine(ctx, known); err != nil {
		return err
	}
	return c.awaitSnapshots(ctx, known)
}

// follow reads the sandbox's log from the daemon until it is at rest, or DELETED where nobody holds it. It returns nil for a sandbox that is not
// there, and for one that comes to no rest.
func (c *Checker) follow(ctx context.Context, id string) (*history, error) {
	found, err := c.Client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if errors.Is(err, raw.ErrSandboxNotFound) {
		c.Record.mu.Lock()
		defer c.Record.mu.Unlock()
		c.judge(c.Record.sandbox(id), newHistory(id, nil, c.report))
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%w: sandbox %s: %w", ErrUnreadable, id, err)
	}
	stream, err := c.Client.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("%w: events of %s: %w", ErrUnreadable, id, err)
	}
	defer stream.Close()
	h, ends := newHistory(id, nil, c.report), c.Record.ends(id)
	for {
		event, err := stream.Recv()
		if ctx.Err() != nil {
			c.report.add(Stuck, id, "it is %s, busy: %v, and runs %d execs after event %d", h.state, h.busy, len(h.running), h.newest())
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("%w: events of %s: %w", ErrUnreadable, id, err)
		}
		h.add(event, c.report)
		if h.newest() >= found.Sandbox.LastEventSequence && h.atRest() && (!ends || h.state == deleted || h.gaveUp()) {
			return h, nil
		}
	}
}

func (c *Checker) judgeRest(id string, h *history) {
	c.Record.mu.Lock()
	defer c.Record.mu.Unlock()
	s := c.Record.sandbox(id)
	c.judge(s, h)
	c.report.mu.Lock()
	defer c.report.mu.Unlock()
	for exec := range h.ends {
		c.report.execs[exec] = true
	}
	if h.state != deleted {
		return
	}
	c.report.sandboxes++
	c.report.events += h.newest()
	for _, count := range s.accepted {
		c.report.operations += count
	}
	s.settle(h.newest())
}

// judgeAnswers compares what the daemon answers with what it streams.
func (c *Checker) judgeAnswers(ctx context.Context, id string, h *history) error {
	found, err := c.Client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil {
		return fmt.Errorf("%w: sandbox %s: %w", ErrUnreadable, id, err)
	}
	if s := found.Sandbox; s.State != h.state || s.LastEventSequence != h.newest() {
		c.report.add(InconsistentView, id, "GetSandbox says %s at %d, the log %s at %d", s.State, s.LastEventSequence, h.state, h.newest())
	}
	active, err := c.Client.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{SandboxId: &id})
	if err != nil {
		return fmt.Errorf("%w: execs of %s: %w", ErrUnreadable, id, err)
	}
	for _, exec := range active.Execs {
		c.report.add(InconsistentView, exec.ExecId, "ListActiveExecs has it, the log has its end")
	}
	for execID, end := range h.ends {
		found, err := c.Client.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: execID})
		if err != nil {
			c.report.add(InconsistentView, execID, "GetExec says %v, the log has its end", err)
			continue
		}
		if details := end.GetExec(); found.Exec.State != details.ExecState || found.Exec.ExitCode != details.ExitCode {
			c.report.add(InconsistentView, execID, "GetExec says %s with %d, the log %s with %d",
				found.Exec.State, found.Exec.ExitCode, details.ExecState, details.ExitCode)
		}
	}
	return nil
}
