package measure

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// replay reads a long history.
func (b *Bench) replay(ctx context.Context) (_ []figure.Row, err error) {
	d, ids, err := b.recorded(1, b.Replayed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := errors.Join(d.start(), d.answers(ctx)); err != nil {
		return nil, err
	}
	got, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: ids[0]})
	if err != nil {
		return nil, err
	}
	last := got.Sandbox.LastEventSequence
	var rates []float64
	for range b.Rounds {
		stream, err := d.follow(ctx, ids[0], 0)
		if err != nil {
			return nil, err
		}
		clock := time.Now()
		for sequence := uint64(0); sequence < last; {
			event, err := stream.Recv()
			if err != nil {
				stream.Close()
				return nil, err
			}
			sequence = event.Sequence
		}
		rates = append(rates, float64(last)/time.Since(clock).Seconds())
		stream.Close()
	}
	return []figure.Row{{Key: "replay", Name: fmt.Sprintf("replay of %d events to one subscriber", last), Unit: "events/s",
		Ours: figure.Numbers(rates), Promise: figure.Promise{AtLeast: 300_000}}}, nil
}

// followed is how many commands run while subscribers follow, one after the other, of two events each.
const followed = 30

// perConnection is how many streams share a connection.
const perConnection = 100

// followers has many subscribers follow one sandbox, and measures from the time that an event carries, which is before it was
// written to the disk, until a subscriber has it.
func (b *Bench) followers(ctx context.Context) (_ []figure.Row, err error) {
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
	var rows []figure.Row
	for _, n := range b.Followers {
		late, err := r.lateness(ctx, n)
		if err != nil {
			return nil, err
		}
		p99 := figure.Percentile(late, 99)
		row := figure.Row{
			Key: fmt.Sprintf("follow-%d", n), Name: fmt.Sprintf("event → each of %d live subscribers, p99", n), Unit: "ms",
			Ours: figure.Spread{Median: figure.MS(p99), Min: figure.MS(late[0]), Max: figure.MS(late[len(late)-1]), Count: len(late)},
			Note: "median " + figure.Number(figure.MS(figure.Percentile(late, 50))) + " ms",
		}
		if n >= 1000 {
			row.Promise.AtMost = 20
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// lateness runs commands while n follow, and returns how late each event reached each, sorted.
func (r *runner) lateness(ctx context.Context, n int) (late []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := r.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: r.id})
	if err != nil {
		return nil, err
	}
	from := got.Sandbox.LastEventSequence
	var clients []*raw.Client
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	var mu sync.Mutex
	var failed error
	var group sync.WaitGroup
	var here sync.WaitGroup
	for i := range n {
		if i%perConnection == 0 {
			c, err := raw.Dial(raw.WithSocket(filepath.Join(r.dir, "agbox", "agboxd.sock")))
			if err != nil {
				return nil, err
			}
			clients = append(clients, c)
		}
		stream, err := clients[len(clients)-1].SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: r.id, FromSequence: from - 1})
		if err != nil {
			return nil, err
		}
		here.Add(1)
		group.Go(func() {
			defer stream.Close()
			_, err := stream.Recv() // the newest one, again: from here on it is live
			here.Done()
			own := make([]time.Duration, 0, 2*followed)
			for err == nil && len(own) < 2*followed {
				var event *agboxv1.SandboxEvent
				if event, err = stream.Recv(); err == nil {
					own = append(own, time.Since(event.OccurredAt.AsTime()))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			late, failed = append(late, own...), errors.Join(failed, err)
		})
	}
	here.Wait()
	for range followed {
		if _, err := r.atOnce(ctx, 1); err != nil {
			cancel()
			group.Wait()
			return nil, err
		}
	}
	group.Wait()
	slices.Sort(late)
	return late, failed
}
