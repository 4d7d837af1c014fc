package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	recovered      = 20 // sandboxes
	recoveredExecs = 50 // in each, two events an exec
	recoveries     = 5
)

// recovery kills the daemon with sandboxes that run and have a history, and measures from the start of the next one
// until it has answered for each of them.
func (b *bench) recovery(ctx context.Context) ([]row, error) {
	ids := make([]string, recovered)
	for i := range ids {
		ids[i] = fmt.Sprintf("bench-recovery-%02d", i)
		spec := &agboxv1.CreateSpec{Image: b.image}
		if _, err := b.agboxd.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: ids[i], CreateSpec: spec}); err != nil {
			return nil, err
		}
		defer b.discard(context.WithoutCancel(ctx), ids[i])
	}
	for _, id := range ids {
		if err := b.history(ctx, id); err != nil {
			return nil, err
		}
	}
	answers := row{step: fmt.Sprintf("kill -9 -> %d Gets answered", recovered), bound: "<= 60 ms"}
	for range recoveries {
		if err := b.daemon.Process.Kill(); err != nil {
			return nil, err
		}
		b.daemon.Wait()
		clock := time.Now()
		if err := b.start(); err != nil {
			return nil, err
		}
		if err := b.getAll(ctx, ids); err != nil {
			return nil, err
		}
		answers.ours = append(answers.ours, lap(&clock))
	}
	return []row{answers}, nil
}

func (b *bench) history(ctx context.Context, id string) error {
	ready, err := b.until(ctx, id, 0, agboxv1.EventType_SANDBOX_READY)
	if err != nil {
		return err
	}
	stream, err := b.agboxd.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: ready})
	if err != nil {
		return err
	}
	defer stream.Close()
	for range recoveredExecs {
		if _, err := b.agboxd.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}); err != nil {
			return err
		}
	}
	return b.finished(stream, recoveredExecs)
}

// getAll asks for each sandbox until it is told. A connection of its own has no back-off from the time when nobody
// listened.
func (b *bench) getAll(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := b.getOnce(ctx, ids, agboxv1.SandboxState_SANDBOX_STATE_READY)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *bench) getOnce(ctx context.Context, ids []string, want agboxv1.SandboxState) error {
	conn, err := grpc.NewClient("unix://"+b.agboxd.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := agboxv1.NewSandboxServiceClient(conn)
	for _, id := range ids {
		got, err := client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			return err
		}
		if got.Sandbox.State != want {
			return fmt.Errorf("sandbox %s is %v", id, got.Sandbox.State)
		}
	}
	return nil
}
