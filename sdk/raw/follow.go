package raw

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/protobuf/proto"
)

const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Follow subscribes to the events of a sandbox and keeps at it: a stream that breaks because the
// daemon went away is opened again from the last sequence seen, so events arrive in order, without
// gap or duplicate. Only synthetic snapshot events may be told again, when it breaks before the
// first other one.
//
// It ends after SANDBOX_DELETED, which nothing follows, and else with one last error: the context's
// when that is done, ErrUnavailable when the very first attempt finds no daemon, or what the daemon
// refused. broken, unless nil, is told of each break, from the caller's goroutine.
func (c *Client) Follow(ctx context.Context, req *agboxv1.SubscribeSandboxEventsRequest, broken func(error)) iter.Seq2[*agboxv1.SandboxEvent, error] {
	return func(yield func(*agboxv1.SandboxEvent, error) bool) {
		f := follower{client: c, req: proto.CloneOf(req), pause: firstPause}
		for {
			err := f.once(ctx, yield)
			switch {
			case err == nil:
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			case !f.opened || !transient(err):
				yield(nil, err)
				return
			}
			if broken != nil {
				broken(err)
			}
			if err := f.rest(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

type follower struct {
	client *Client
	req    *agboxv1.SubscribeSandboxEventsRequest // what the next stream asks for
	opened bool
	pause  time.Duration
}

// once passes on what one stream holds. It returns nil when there is nothing more to come or to
// pass on, else what ended the stream.
func (f *follower) once(ctx context.Context, yield func(*agboxv1.SandboxEvent, error) bool) error {
	stream, err := f.client.SubscribeSandboxEvents(ctx, f.req)
	if err != nil {
		return err
	}
	defer stream.Close()
	f.opened = true
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		f.pause = firstPause
		if !event.GetSnapshot() {
			if event.GetSequence() <= f.req.GetFromSequence() {
				continue
			}
			f.req.FromSequence, f.req.IncludeCurrentSnapshot = event.GetSequence(), false
		}
		last := !event.GetSnapshot() && event.GetEventType() == agboxv1.EventType_SANDBOX_DELETED
		if !yield(event, nil) || last {
			return nil
		}
	}
}

// rest waits before the next attempt, longer after each that brought nothing.
func (f *follower) rest(ctx context.Context) error {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	f.pause = min(2*f.pause, lastPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// transient tells what a restart of the daemon looks like from here, given that our own context
// is not done.
func transient(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled)
}
