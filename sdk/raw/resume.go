package raw

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/proto"
)

// Resume has once do its work, and do it again for as long as the daemon goes away meanwhile: it fails with ErrUnavailable,
// or its stream ended before its time. once calls met as soon as it has met a daemon, and when it has got on; a failure
// before that is final. Resume returns nil with once, and else what it failed with for good, or what ended ctx.
func (c *Client) Resume(ctx context.Context, once func(met func()) error) error {
	ever, pauses := false, newPauses()
	return c.retry(ctx, pauses, func() error {
		err := once(func() { ever = true; pauses.Reset() })
		if err != nil && !ever {
			return backoff.Permanent(err)
		}
		return err
	})
}

// Await is Resume for a question about what was accepted before: it also waits for a daemon when there is none at first.
func (c *Client) Await(ctx context.Context, ask func() error) error {
	return c.retry(ctx, newPauses(), ask)
}

// newPauses begin with about 20 ms and come to about a second.
func newPauses() *backoff.ExponentialBackOff {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval = 20*time.Millisecond, 2, time.Second
	return pauses
}

func (c *Client) retry(ctx context.Context, pauses backoff.BackOff, once func() error) error {
	_, err := backoff.Retry(ctx, func() (none struct{}, err error) {
		err = once()
		switch {
		case err != nil && ctx.Err() != nil:
			err = backoff.Permanent(context.Cause(ctx))
		case !errors.Is(err, io.EOF) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled):
			err = backoff.Permanent(err)
		}
		return none, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) { c.broken(err) }))
	return err
}

// Follow subscribes to the events of a sandbox and keeps at it: a stream that breaks because the
// daemon went away is opened again from the last sequence seen, so events arrive in order, without
// gap or duplicate. Only synthetic snapshot events may be told again, when it breaks before the
// first other one.
//
// It ends after SANDBOX_DELETED, which nothing follows, and else with one last error: what ended the context,
// ErrUnavailable when the very first attempt finds no daemon, or what the daemon refused.
func (c *Client) Follow(ctx context.Context, req *agboxv1.SubscribeSandboxEventsRequest) iter.Seq2[*agboxv1.SandboxEvent, error] {
	return func(yield func(*agboxv1.SandboxEvent, error) bool) {
		next := proto.CloneOf(req)
		err := c.Resume(ctx, func(met func()) error {
			stream, err := c.SubscribeSandboxEvents(ctx, next)
			if err != nil {
				return err
			}
			defer stream.Close()
			for met(); ; met() {
				event, err := stream.Recv()
				if err != nil {
					return err
				}
				if !event.GetSnapshot() {
					if event.GetSequence() <= next.GetFromSequence() {
						continue
					}
					next.FromSequence, next.IncludeCurrentSnapshot = event.GetSequence(), false
				}
				last := !event.GetSnapshot() && event.GetEventType() == agboxv1.EventType_SANDBOX_DELETED
				if !yield(event, nil) || last {
					return nil
				}
			}
		})
		if err != nil {
			yield(nil, err)
		}
	}
}
