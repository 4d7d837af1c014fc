package main

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// lives creates, stops and deletes sandboxes in turn with a network and a container made by hand.
func (b *bench) lives(ctx context.Context, rounds int) ([]row, error) {
	create := row{step: "create -> READY", bound: "<= 1.05"}
	stop := row{step: "stop -> STOPPED | kill", bound: "<= 1.10"}
	remove := row{step: "delete -> DELETED | rm"}
	for i := range rounds + 1 {
		ours, err := b.life(ctx)
		if err != nil {
			return nil, err
		}
		plain, err := b.plainLife(ctx, i)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue // warm-up
		}
		for n, r := range []*row{&create, &stop, &remove} {
			r.ours, r.docker = append(r.ours, ours[n]), append(r.docker, plain[n])
		}
	}
	return []row{create, stop, remove}, nil
}

// life returns how long create, stop and delete took.
func (b *bench) life(ctx context.Context) (took [3]time.Duration, err error) {
	clock := time.Now()
	created, err := b.agboxd.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: b.image}})
	if err != nil {
		return took, err
	}
	id := created.Sandbox.SandboxId
	at, err := b.until(ctx, id, created.Sandbox.LastEventSequence, agboxv1.EventType_SANDBOX_READY)
	if err != nil {
		return took, err
	}
	took[0] = lap(&clock)
	if _, err := b.agboxd.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		return took, err
	}
	if at, err = b.until(ctx, id, at, agboxv1.EventType_SANDBOX_STOPPED); err != nil {
		return took, err
	}
	took[1] = lap(&clock)
	if _, err := b.agboxd.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		return took, err
	}
	_, err = b.until(ctx, id, at, agboxv1.EventType_SANDBOX_DELETED)
	took[2] = lap(&clock)
	return took, err
}

// plainLife does the same by the Engine API.
func (b *bench) plainLife(ctx context.Context, i int) (took [3]time.Duration, err error) {
	name := fmt.Sprintf("agbox-bench-%d", i)
	subnet := fmt.Sprintf("10.215.0.%d/28", i%16*16)
	clock := time.Now()
	_, err = b.engine.NetworkCreate(ctx, name, network.CreateOptions{Driver: "bridge",
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}})
	if err != nil {
		return took, err
	}
	created, err := b.engine.ContainerCreate(ctx,
		&container.Config{Image: b.image, Cmd: []string{"sleep", "1000"}},
		&container.HostConfig{NetworkMode: container.NetworkMode(name)}, nil, nil, name)
	if err != nil {
		return took, err
	}
	if err := b.engine.ContainerStart(ctx, created.ID, container.StartOptions{}); err != nil {
		return took, err
	}
	took[0] = lap(&clock)
	if err := b.engine.ContainerKill(ctx, created.ID, "KILL"); err != nil {
		return took, err
	}
	exited, errs := b.engine.ContainerWait(ctx, created.ID, container.WaitConditionNotRunning)
	select {
	case <-exited:
	case err := <-errs:
		return took, err
	}
	took[1] = lap(&clock)
	if err := b.engine.ContainerRemove(ctx, created.ID, container.RemoveOptions{Force: true}); err != nil {
		return took, err
	}
	err = b.engine.NetworkRemove(ctx, name)
	took[2] = lap(&clock)
	return took, err
}

// lap returns the time since clock and sets clock to now.
func lap(clock *time.Time) time.Duration {
	now := time.Now()
	took := now.Sub(*clock)
	*clock = now
	return took
}
