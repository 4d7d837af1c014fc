package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

const (
	together       = 50
	togetherRounds = 5
	// plainExecs are enough to know Docker's own exec, which takes about 70 ms.
	plainExecs = 20
)

// execs runs `true` in one sandbox, one at a time and 50 at once, in turn with Docker's own exec in the same
// container.
func (b *bench) execs(ctx context.Context, serial int) ([]row, error) {
	created, err := b.agboxd.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: b.image}})
	if err != nil {
		return nil, err
	}
	id := created.Sandbox.SandboxId
	defer b.discard(context.WithoutCancel(ctx), id)
	ready, err := b.until(ctx, id, 0, agboxv1.EventType_SANDBOX_READY)
	if err != nil {
		return nil, err
	}
	stream, err := b.agboxd.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: ready})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	one, err := b.serialExecs(ctx, id, stream, serial)
	if err != nil {
		return nil, err
	}
	many := row{step: fmt.Sprintf("%d execs at once, wall", together), bound: "<= 60 ms"}
	for range togetherRounds {
		ours, err := b.burst(ctx, id, stream)
		if err != nil {
			return nil, err
		}
		plain, err := b.plainBurst(ctx, id)
		if err != nil {
			return nil, err
		}
		many.ours, many.docker = append(many.ours, ours), append(many.docker, plain)
	}
	return []row{one, many}, nil
}

func (b *bench) serialExecs(ctx context.Context, id string, stream *raw.Stream, serial int) (row, error) {
	one := row{step: "exec true -> EXEC_FINISHED", bound: "<= 2.5 ms"}
	for i := range serial {
		if i%max(serial/plainExecs, 1) == 0 {
			clock := time.Now()
			if err := b.plainExec(ctx, id); err != nil {
				return one, err
			}
			one.docker = append(one.docker, lap(&clock))
		}
		clock := time.Now()
		if _, err := b.agboxd.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}); err != nil {
			return one, err
		}
		if err := b.finished(stream, 1); err != nil {
			return one, err
		}
		one.ours = append(one.ours, lap(&clock))
	}
	return one, nil
}

// burst starts many execs at once over one connection and returns the time until the end of the last was told.
func (b *bench) burst(ctx context.Context, id string, stream *raw.Stream) (time.Duration, error) {
	clock := time.Now()
	started := make(chan error, together)
	for range together {
		go func() {
			_, err := b.agboxd.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
			started <- err
		}()
	}
	var errs error
	for range together {
		errs = errors.Join(errs, <-started)
	}
	if errs != nil {
		return 0, errs
	}
	err := b.finished(stream, together)
	return lap(&clock), err
}

// finished returns once n execs more are told to have finished.
func (b *bench) finished(stream *raw.Stream, n int) error {
	for n > 0 {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if event.EventType == agboxv1.EventType_EXEC_FINISHED {
			n--
		}
	}
	return nil
}

func (b *bench) plainBurst(ctx context.Context, id string) (time.Duration, error) {
	errs := make([]error, together)
	clock := time.Now()
	var group sync.WaitGroup
	for i := range together {
		group.Go(func() { errs[i] = b.plainExec(ctx, id) })
	}
	group.Wait()
	return lap(&clock), errors.Join(errs...)
}

// plainExec runs true by Docker's own exec, attached, until its exit code is known.
func (b *bench) plainExec(ctx context.Context, id string) error {
	created, err := b.engine.ContainerExecCreate(ctx, "agbox-primary-"+id,
		container.ExecOptions{Cmd: []string{"true"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := b.engine.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := io.Copy(io.Discard, attached.Reader); err != nil {
		return err
	}
	ended, err := b.engine.ContainerExecInspect(ctx, created.ID)
	if err == nil && (ended.Running || ended.ExitCode != 0) {
		err = fmt.Errorf("docker's exec ended with %+v", ended)
	}
	return err
}

func (b *bench) discard(ctx context.Context, id string) {
	if _, err := b.agboxd.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err == nil {
		b.until(ctx, id, 0, agboxv1.EventType_SANDBOX_DELETED)
	}
}
