package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// idle has many sandboxes in which nothing happens, each with a subscriber.
func (b *Bench) idle(ctx context.Context) (_ []figure.Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	streams, errs := make([]*raw.Stream, b.Idle), make([]error, b.Idle)
	defer func() {
		for _, stream := range streams {
			if stream != nil {
				stream.Close()
			}
		}
	}()
	var group sync.WaitGroup
	for i := range b.Idle {
		group.Go(func() {
			id, ready, err := d.create(ctx, d.unconnected())
			if err == nil {
				streams[i], err = d.follow(ctx, id, ready-1)
			}
			if err == nil {
				_, err = streams[i].Recv()
			}
			errs[i] = err
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	select { // what the creates have left is done
	case <-time.After(b.IdleFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	before, err := costOf(d.pid())
	if err != nil {
		return nil, err
	}
	clock := time.Now()
	select {
	case <-time.After(b.IdleFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := costOf(d.pid())
	if err != nil {
		return nil, err
	}
	share := 100 * float64(after.cpu-before.cpu) / float64(lap(&clock))
	memory, err := resident(d.pid())
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d idle sandboxes with %d subscribers: ", b.Idle, b.Idle)
	return []figure.Row{
		{Key: "idle-cpu", Name: name + "the daemon's share of a core", Unit: "%", Ours: figure.Numbers([]float64{share}), Promise: figure.Promise{AtMost: 1}},
		{Key: "idle-memory", Name: name + "the daemon's resident memory", Unit: "MB", Ours: figure.Numbers([]float64{memory}), Promise: figure.Promise{AtMost: 80}},
	}, nil
}
