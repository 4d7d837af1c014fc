package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// restartExecs is how many commands each sandbox has in its history, of two events each.
const restartExecs = 50

// restarts kills the daemon with sandboxes that run and have a history, and measures from the start of the next one until it has
// answered for each of them.
func (b *Bench) restarts(ctx context.Context) (_ []figure.Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	var ids []string
	for range b.Restarted {
		r, err := b.runner(ctx, d)
		if err != nil {
			return nil, err
		}
		_, err = r.atOnce(ctx, restartExecs)
		r.stream.Close()
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.id)
	}
	var took []time.Duration
	for range b.Rounds {
		if err := d.kill(); err != nil {
			return nil, err
		}
		clock := time.Now()
		if err := d.start(); err != nil {
			return nil, err
		}
		if err := d.tells(ctx, ids, agboxv1.SandboxState_SANDBOX_STATE_READY); err != nil {
			return nil, err
		}
		took = append(took, lap(&clock))
	}
	if err := d.answers(ctx); err != nil { // on the client's own connection, which may wait before it tries again
		return nil, err
	}
	return []figure.Row{{Key: "restart", Name: fmt.Sprintf("kill -9 → %d sandboxes told of, with %d events each", len(ids), 2*restartExecs),
		Unit: "ms", Ours: figure.Milliseconds(took), Promise: figure.Promise{AtMost: 60}}}, nil
}

// tells asks for each sandbox until it is in that state.
func (d *daemon) tells(ctx context.Context, ids []string, state agboxv1.SandboxState) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		err := d.tellsNow(ctx, ids, state)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// tellsNow asks on a connection of its own, which has no back-off from the time when nobody listened.
func (d *daemon) tellsNow(ctx context.Context, ids []string, state agboxv1.SandboxState) (err error) {
	conn, err := grpc.NewClient("unix://"+d.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := agboxv1.NewSandboxServiceClient(conn)
	for _, id := range ids {
		got, err := client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			return err
		}
		if got.Sandbox.State != state {
			return fmt.Errorf("sandbox %s is %v", id, got.Sandbox.State)
		}
	}
	return nil
}
