package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// wroteAll checks that a file has its whole length, and empties it.
func wroteAll(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() != size {
		return fmt.Errorf("%s has %d bytes and not %d", path, info.Size(), size)
	}
	return os.Truncate(path, 0)
}

// pauses freezes and thaws one sandbox, in turn with its container by hand.
func (b *Bench) pauses(ctx context.Context) (_ []figure.Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r, err := b.runner(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.stream.Close()
	var ours, side []time.Duration
	for range b.Lives {
		clock := time.Now()
		if _, err := r.PauseSandbox(ctx, &agboxv1.PauseSandboxRequest{SandboxId: r.id}); err != nil {
			return nil, err
		}
		if _, err := told(r.stream, agboxv1.EventType_SANDBOX_PAUSED); err != nil {
			return nil, err
		}
		if _, err := r.UnpauseSandbox(ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: r.id}); err != nil {
			return nil, err
		}
		if _, err := told(r.stream, agboxv1.EventType_SANDBOX_UNPAUSED); err != nil {
			return nil, err
		}
		ours = append(ours, lap(&clock))
		if err := b.engine.ContainerPause(ctx, containerOf(r.id)); err != nil {
			return nil, err
		}
		if err := b.engine.ContainerUnpause(ctx, containerOf(r.id)); err != nil {
			return nil, err
		}
		side = append(side, lap(&clock))
	}
	return []figure.Row{beside("pause", "pause → PAUSED, unpause → UNPAUSED", "both by the Engine API", ours, side, figure.Promise{})}, nil
}
