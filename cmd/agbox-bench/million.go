package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

const (
	logs       = 1_000 // sandboxes
	logEvents  = 1_000 // in each
	firstLog   = "bench-log-0000"
	logsAnswer = 10 * time.Second
)

// million starts a daemon of its own on a database with a million events that no checkpoint covers, and measures until
// it answers for one sandbox, and what memory it has then and once it has answered for all. The sandboxes are STOPPED,
// so that the engine has no part in it.
func (b *bench) million(ctx context.Context) (_ []row, err error) {
	loaded := &bench{path: b.path}
	if loaded.dir, err = os.MkdirTemp("", "agbox-bench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, loaded.close()) }()
	if err := fillLogs(filepath.Join(loaded.dir, "agents-sandbox", "ids.db")); err != nil {
		return nil, err
	}
	if loaded.agboxd, err = raw.Dial(raw.WithSocket(filepath.Join(loaded.dir, "agbox", "agboxd.sock"))); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d sandboxes, %d events: ", logs, logs*logEvents)
	answer := row{step: name + "start -> first Get answered", bound: "<= 1500 ms"}
	memory := row{step: name + "resident then, after a List", bound: "< 200 MB"}
	for range recoveries {
		clock := time.Now()
		if err := loaded.start(); err != nil {
			return nil, err
		}
		if err := loaded.answers(ctx, firstLog); err != nil {
			return nil, err
		}
		answer.ours = append(answer.ours, lap(&clock))
		first, err := resident(loaded.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		if _, err := loaded.agboxd.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{}); err != nil {
			return nil, err
		}
		all, err := resident(loaded.daemon.Process.Pid)
		if err != nil {
			return nil, err
		}
		memory.text = fmt.Sprintf("%d MB, %d MB", first/1024, all/1024)
		if err := loaded.daemon.Process.Kill(); err != nil {
			return nil, err
		}
		loaded.daemon.Wait()
	}
	loaded.daemon = nil
	return []row{answer, memory}, nil
}

// answers asks for the sandbox until it is told.
func (b *bench) answers(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, logsAnswer)
	defer cancel()
	for {
		err := b.getOnce(ctx, []string{id}, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
}

// resident returns a process's resident memory in KiB, pages of mapped files included.
func resident(pid int) (kib int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	_, err = fmt.Sscan(string(rest), &kib)
	return kib, err
}

// fillLogs makes a database in which every sandbox ran commands and was stopped.
func fillLogs(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	db, err := persist.Open(path)
	if err != nil {
		return err
	}
	for i := range logs {
		for _, err := range db.AppendAll(logOf(fmt.Sprintf("bench-log-%04d", i))) {
			if err != nil {
				return errors.Join(err, db.Close())
			}
		}
	}
	return db.Close()
}

func logOf(id string) []persist.Entry {
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
	for i := range (logEvents - 4) / 2 {
		exec := fmt.Sprintf("%s-x%d", id, i)
		take(lifecycle.StartExec{ExecID: exec}, persist.Entry{StartExec: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: exec, Command: []string{"true"}}})
		ended := runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, Started: at, Ended: at}
		take(lifecycle.ExecEnded{ExecID: exec, Result: ended}, persist.Entry{})
	}
	take(lifecycle.Stop{Reason: lifecycle.ReasonStopRequested}, persist.Entry{})
	take(lifecycle.OperationDone{Operation: lifecycle.Stopping}, persist.Entry{})
	return entries
}
