package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// The rhythm of readings: of a client that names none, and the fastest, which one reading of a busy engine fills.
const (
	usualInterval    = time.Second
	shortestInterval = 100 * time.Millisecond
)

// engineCalls is how many containers one stream has the engine read at once.
const engineCalls = 4

// WatchStats reads every sandbox that matches and runs, once when it begins to and then with all others at each interval.
// What is not read or sent by the next one is not read again for it: a slow engine or client gets fewer readings, and
// holds no more than engineCalls of them. The response headers say that it has begun.
func (s *Fleet) WatchStats(req *agboxv1.WatchStatsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxStats]) error {
	if err := spec.ValidateLabels("label_selector", req.LabelSelector); err != nil {
		return err
	}
	interval, err := statsInterval(req)
	if err != nil {
		return err
	}
	w := &statsWatch{
		fleet: s, selector: req.LabelSelector, stream: stream, version: s.db.Version(),
		watched: map[string]bool{}, busy: map[string]bool{},
		next: make(chan string), done: make(chan reading), calls: semaphore.NewWeighted(engineCalls),
	}
	if err := w.look(); err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	ctx, leave := context.WithCancel(stream.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer leave()
	for range engineCalls {
		readers.Go(func() { w.read(ctx) })
	}
	return w.run(ctx, interval)
}

func statsInterval(req *agboxv1.WatchStatsRequest) (time.Duration, error) {
	if req.Interval == nil {
		return usualInterval, nil
	}
	if err := spec.ValidateDuration("interval", req.Interval); err != nil {
		return 0, err
	}
	interval := req.Interval.AsDuration()
	if interval < shortestInterval {
		return 0, &spec.Error{Reason: spec.ReasonDurationTooShort, Field: "interval",
			Message: fmt.Sprintf("%s is too short to read the sandboxes in; use at least %s", interval, shortestInterval)}
	}
	return interval, nil
}

// statsWatch is one stream of stats. All but the channels and calls belongs to the stream's own goroutine.
type statsWatch struct {
	fleet    *Fleet
	selector map[string]string
	stream   grpc.ServerStreamingServer[agboxv1.SandboxStats]
	// version is up to where it has been told which sandboxes changed.
	version uint64
	// watched are the sandboxes that match and run. busy are those that are due, or being read.
	watched, busy map[string]bool
	due           []string
	// next hands a sandbox to a reader, done brings what it uses.
	next  chan string
	done  chan reading
	calls *semaphore.Weighted
}

type reading struct {
	id         string
	containers []*agboxv1.ContainerStats
	err        error
}

func (w *statsWatch) run(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		changes := w.fleet.db.ChangesAfter(w.version)
		if err := w.take(changes); err != nil {
			return err
		}
		next, id := w.first()
		select {
		case next <- id:
			w.due = w.due[1:]
		case r := <-w.done:
			if err := w.send(r); err != nil {
				return err
			}
		case <-ticker.C:
			for id := range w.watched {
				w.want(id)
			}
		case <-changes.Next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// first returns the sandbox to read next and where to hand it; no channel when there is none.
func (w *statsWatch) first() (chan<- string, string) {
	for len(w.due) > 0 {
		id := w.due[0]
		if w.watched[id] {
			return w.next, id
		}
		w.due = w.due[1:]
		delete(w.busy, id)
	}
	return nil, ""
}

func (w *statsWatch) want(id string) {
	if !w.busy[id] {
		w.busy[id] = true
		w.due = append(w.due, id)
	}
}

// take learns which sandboxes came, and which run no more.
func (w *statsWatch) take(changes persist.Changes) error {
	w.version = changes.Version
	if changes.Overflow {
		return w.look()
	}
	for _, id := range changes.Changed {
		sandbox, found := w.fleet.system.Spec(id)
		if !found || !Carries(sandbox.Labels, w.selector) {
			delete(w.watched, id)
			continue
		}
		view, err := w.fleet.system.Sandbox(id)
		if err != nil && !errors.Is(err, actors.ErrNotFound) {
			return err
		}
		w.note(id, err == nil && view.State.Up())
	}
	return nil
}

// look looks at all sandboxes anew.
func (w *statsWatch) look() error {
	views, err := w.fleet.Matching(w.selector)
	if err != nil {
		return err
	}
	gone := w.watched
	w.watched = make(map[string]bool, len(views))
	for _, view := range views {
		id := view.State.SandboxID
		w.watched[id] = gone[id]
		w.note(id, view.State.Up())
	}
	return nil
}

func (w *statsWatch) note(id string, up bool) {
	switch {
	case !up:
		delete(w.watched, id)
	case !w.watched[id]:
		w.watched[id] = true
		w.want(id)
	}
}

// send sends what a sandbox uses, unless it has ended meanwhile. An engine that does not answer ends the stream, what
// cannot be read of one sandbox does not.
func (w *statsWatch) send(r reading) error {
	delete(w.busy, r.id)
	switch {
	case errors.Is(r.err, runtime.ErrUnreachable):
		return refusal.Concerning(r.err, "sandbox_id", r.id)
	case r.err != nil:
		w.fleet.log.Warn("stats could not be read", slog.String("sandbox_id", r.id), slog.Any("error", r.err))
		return nil
	case !w.watched[r.id] || !PrimaryRuns(r.containers):
		return nil
	}
	return w.stream.Send(&agboxv1.SandboxStats{SandboxId: r.id, Containers: r.containers})
}

// read reads one sandbox after the other until ctx ends.
func (w *statsWatch) read(ctx context.Context) {
	for {
		select {
		case id := <-w.next:
			r := reading{id: id}
			r.containers, r.err = w.stats(ctx, id)
			select {
			case w.done <- r:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *statsWatch) stats(ctx context.Context, id string) ([]*agboxv1.ContainerStats, error) {
	sandbox, found := w.fleet.system.Spec(id)
	if !found {
		return nil, nil
	}
	weight := statsWeight(sandbox)
	if err := w.calls.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer w.calls.Release(weight)
	return w.fleet.runtime.Stats(ctx, id)
}

// statsWeight is how many of engineCalls the sandbox's containers take.
func statsWeight(sandbox *agboxv1.CreateSpec) int64 {
	return int64(min(1+len(sandbox.RequiredServices)+len(sandbox.OptionalServices), engineCalls))
}

// PrimaryRuns reports whether the stats are of a sandbox that runs, of whose containers the primary is the first.
func PrimaryRuns(containers []*agboxv1.ContainerStats) bool {
	return len(containers) > 0 && containers[0].ServiceName == ""
}
