package main

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// pauses freezes and thaws one sandbox, in turn with its container by hand.
func (b *bench) pauses(ctx context.Context, rounds int) ([]row, error) {
	const id = "bench-pause"
	spec := &agboxv1.CreateSpec{Image: b.image}
	if _, err := b.agboxd.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: spec}); err != nil {
		return nil, err
	}
	defer b.discard(context.WithoutCancel(ctx), id)
	at, err := b.until(ctx, id, 0, agboxv1.EventType_SANDBOX_READY)
	if err != nil {
		return nil, err
	}
	stream, err := b.agboxd.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: at})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	told := func(kind agboxv1.EventType) error {
		for {
			event, err := stream.Recv()
			if err != nil || event.EventType == kind {
				return err
			}
		}
	}
	step := row{step: "pause -> PAUSED, unpause -> UNPAUSED", bound: "<= 1.20"}
	for range rounds {
		clock := time.Now()
		if _, err := b.agboxd.PauseSandbox(ctx, &agboxv1.PauseSandboxRequest{SandboxId: id}); err != nil {
			return nil, err
		}
		if err := told(agboxv1.EventType_SANDBOX_PAUSED); err != nil {
			return nil, err
		}
		if _, err := b.agboxd.UnpauseSandbox(ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: id}); err != nil {
			return nil, err
		}
		if err := told(agboxv1.EventType_SANDBOX_UNPAUSED); err != nil {
			return nil, err
		}
		step.ours = append(step.ours, lap(&clock))
		if err := b.engine.ContainerPause(ctx, "agbox-primary-"+id); err != nil {
			return nil, err
		}
		if err := b.engine.ContainerUnpause(ctx, "agbox-primary-"+id); err != nil {
			return nil, err
		}
		step.docker = append(step.docker, lap(&clock))
	}
	return []row{step}, nil
}
