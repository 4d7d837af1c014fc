package measure

import (
	"context"
	"errors"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

const (
	rawCreate = "network, create, start by the Engine API"
	rawDelete = "container and network removed"
)

// lives creates, stops and deletes sandboxes for which nothing was made ahead, in turn with a network and a container made by hand.
func (b *Bench) lives(ctx context.Context) (_ []figure.Row, err error) {
	config, err := b.nothingReady(ctx)
	if err != nil {
		return nil, err
	}
	d, err := b.daemon(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	ours, side, err := b.inTurn(ctx, d, func() error { return nil })
	if err != nil {
		return nil, err
	}
	return []figure.Row{
		beside("life-create", "create → READY, nothing made ahead", rawCreate, ours[0], side[0], figure.Promise{}),
		beside("life-stop", "stop → STOPPED", "kill and wait", ours[1], side[1], figure.Promise{}),
		beside("life-delete", "delete → DELETED, its network is removed", rawDelete, ours[2], side[2], figure.Promise{}),
	}, nil
}

// inTurn returns how long create, stop and delete took, each time; one more before it warms both up. Between has the daemon made ready again.
func (b *Bench) inTurn(ctx context.Context, d *daemon, between func() error) (ours, side [3][]time.Duration, err error) {
	for i := range b.Lives + 1 {
		our, err := d.life(ctx)
		if err != nil {
			return ours, side, err
		}
		their, err := b.plain.life(ctx)
		if err != nil {
			return ours, side, err
		}
		for step := range our {
			if i > 0 {
				ours[step], side[step] = append(ours[step], our[step]), append(side[step], their[step])
			}
		}
		if err := between(); err != nil {
			return ours, side, err
		}
	}
	return ours, side, nil
}

func (d *daemon) life(ctx context.Context) (took [3]time.Duration, err error) {
	clock := time.Now()
	id, at, err := d.create(ctx, d.spec())
	if err != nil {
		return took, err
	}
	took[0] = lap(&clock)
	if _, err := d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		return took, err
	}
	if at, err = d.until(ctx, id, at, agboxv1.EventType_SANDBOX_STOPPED); err != nil {
		return took, err
	}
	took[1] = lap(&clock)
	if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
		return took, err
	}
	_, err = d.until(ctx, id, at, agboxv1.EventType_SANDBOX_DELETED)
	took[2] = lap(&clock)
	return took, err
}

func (p *plain) life(ctx context.Context) (took [3]time.Duration, err error) {
	clock := time.Now()
	name, err := p.create(ctx)
	if err != nil {
		return took, err
	}
	took[0] = lap(&clock)
	if err := p.stop(ctx, name); err != nil {
		return took, err
	}
	took[1] = lap(&clock)
	err = p.remove(ctx, name)
	took[2] = lap(&clock)
	return took, err
}
