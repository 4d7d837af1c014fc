package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// recorded returns a daemon that was not started, with sandboxes in its database that ran commands and were stopped. The engine has no
// part in them, and no checkpoint covers their events.
func (b *Bench) recorded(sandboxes, events int) (d *daemon, ids []string, err error) {
	if d, err = b.directory(""); err != nil {
		return nil, nil, err
	}
	if ids, err = fill(d.database(), sandboxes, events); err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return d, ids, nil
}

// fill makes a database with so many sandboxes with so many events each, 4 at least.
func fill(path string, sandboxes, events int) (ids []string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	db, err := persist.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var failed error
	var mu sync.Mutex
	var writers sync.WaitGroup
	turn := make(chan struct{}, 64) // their transactions go together
	for i := range sandboxes {
		id := fmt.Sprintf("bench-log-%05d", i)
		ids = append(ids, id)
		turn <- struct{}{}
		writers.Go(func() {
			defer func() { <-turn }()
			err := errors.Join(db.AppendAll(logOf(id, events))...)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	writers.Wait()
	return ids, failed
}

// logOf is the log of a sandbox that is STOPPED.
func logOf(id string, events int) []persist.Entry {
	state, at := lifecycle.New(id, nil), time.Now()
	var entries []persist.Entry
	take := func(c lifecycle.Command, e persist.Entry) {
		e.SandboxID, e.After, e.At = id, state.Sequence, at
		e.Events, _ = lifecycle.Decide(state, lifecycle.Policy{}, c, at)
		for _, event := range e.Events {
			state = lifecycle.Fold(state, event)
		}
		entries = append(entries, e)
	}
	take(lifecycle.Create{}, persist.Entry{Create: &agboxv1.CreateSpec{Image: "image"}})
	take(lifecycle.OperationDone{Operation: lifecycle.Creating}, persist.Entry{})
	for i := range (events - 4) / 2 {
		exec := fmt.Sprintf("%s-x%d", id, i)
		take(lifecycle.StartExec{ExecID: exec}, persist.Entry{StartExec: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: exec, Command: []string{"true"}}})
		ended := runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, Started: at, Ended: at}
		take(lifecycle.ExecEnded{ExecID: exec, Result: ended}, persist.Entry{})
	}
	take(lifecycle.Stop{Reason: lifecycle.ReasonStopRequested}, persist.Entry{})
	take(lifecycle.OperationDone{Operation: lifecycle.Stopping}, persist.Entry{})
	return entries
}

// logs starts the daemon on a large database, and measures until it answers for one sandbox, and what memory it has then and
// once it has answered for all.
func (b *Bench) logs(ctx context.Context) (_ []figure.Row, err error) {
	d, ids, err := b.recorded(b.Logs, b.LogEvents)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	var took []time.Duration
	var first, all []float64
	for range b.Rounds {
		clock := time.Now()
		if err := d.start(); err != nil {
			return nil, err
		}
		if err := d.tells(ctx, ids[:1], agboxv1.SandboxState_SANDBOX_STATE_STOPPED); err != nil {
			return nil, err
		}
		took = append(took, lap(&clock))
		memory, err := resident(d.pid())
		if err != nil {
			return nil, err
		}
		first = append(first, memory)
		if err := d.answers(ctx); err != nil {
			return nil, err
		}
		if _, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{}); err != nil {
			return nil, err
		}
		if memory, err = resident(d.pid()); err != nil {
			return nil, err
		}
		all = append(all, memory)
		if err := d.kill(); err != nil {
			return nil, err
		}
	}
	name := fmt.Sprintf("%d sandboxes with %d events: ", b.Logs, b.Logs*b.LogEvents)
	return []figure.Row{
		{Key: "logs-answer", Name: name + "start → first answer", Unit: "ms", Ours: figure.Milliseconds(took), Promise: figure.Promise{AtMost: 1500}},
		{Key: "logs-memory", Name: name + "resident then", Unit: "MB", Ours: figure.Numbers(first)},
		{Key: "logs-listed", Name: name + "resident after a list of all", Unit: "MB", Ours: figure.Numbers(all), Promise: figure.Promise{AtMost: 200}},
	}, nil
}

// list asks for a list of many sandboxes.
func (b *Bench) list(ctx context.Context) (_ []figure.Row, err error) {
	const few = 4 // events
	d, ids, err := b.recorded(b.Listed, few)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := errors.Join(d.start(), d.answers(ctx)); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range b.Rounds + 1 { // the first one reads the logs
		clock := time.Now()
		list, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
		if err != nil {
			return nil, err
		}
		took = append(took, lap(&clock))
		if len(list.Sandboxes) != len(ids) {
			return nil, fmt.Errorf("%d sandboxes are listed and not %d", len(list.Sandboxes), len(ids))
		}
	}
	name := fmt.Sprintf("list of %d sandboxes", b.Listed)
	return []figure.Row{
		{Key: "list-first", Name: name + ", the first after a start", Unit: "ms", Ours: figure.Milliseconds(took[:1])},
		{Key: "list", Name: name, Unit: "ms", Ours: figure.Milliseconds(took[1:])},
	}, nil
}
