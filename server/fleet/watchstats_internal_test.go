package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// engine is a runtime whose stats a test tells.
type engine func(ctx context.Context, id string) ([]*agboxv1.ContainerStats, error)

func (e engine) Stats(ctx context.Context, id string) ([]*agboxv1.ContainerStats, error) {
	return e(ctx, id)
}

// statsStream is a client that takes a reading when the test does.
type statsStream struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *agboxv1.SandboxStats
}

func (s statsStream) Context() context.Context     { return s.ctx }
func (s statsStream) SendHeader(metadata.MD) error { return nil }
func (s statsStream) Send(stats *agboxv1.SandboxStats) error {
	select {
	case s.sent <- stats:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// watchStats begins a watch of so many READY sandboxes, and returns its server, its client and its end.
func watchStats(t *testing.T, n int, interval time.Duration, stats func(context.Context, string) ([]*agboxv1.ContainerStats, error)) (*Fleet, statsStream, chan error) {
	t.Helper()
	db, err := persist.Open(filepath.Join(t.TempDir(), "ids.db"))
	if err != nil {
		t.Fatal(err)
	}
	log, fake := slog.New(slog.DiscardHandler), actorstest.New()
	system, err := actors.Start(actors.Config{}, db, fake, log)
	if err != nil {
		t.Fatal(err)
	}
	s := New(system, db, engine(stats), log)
	for i := range n {
		makeReady(t, s, fmt.Sprintf("box-%02d", i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	client, ended := statsStream{ctx: ctx, sent: make(chan *agboxv1.SandboxStats)}, make(chan error, 1)
	go func() {
		ended <- s.WatchStats(&agboxv1.WatchStatsRequest{Interval: durationpb.New(interval)}, client)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		for more := true; more; {
			_, more = <-ended
		}
		system.Shutdown(context.Background())
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, client, ended
}

func primary() []*agboxv1.ContainerStats { return []*agboxv1.ContainerStats{{Pids: 1}} }

// TestWatchStatsSlow: while the client takes nothing only so many readings are made, once, however often it would be
// time; and then each sandbox has its turn.
func TestWatchStatsSlow(t *testing.T) {
	t.Parallel()
	const n = 20
	var now, most, calls atomic.Int64
	entered, release := make(chan string, n), make(chan struct{})
	_, client, _ := watchStats(t, n, shortestInterval, func(ctx context.Context, id string) ([]*agboxv1.ContainerStats, error) {
		calls.Add(1)
		for at := now.Add(1); ; {
			seen := most.Load()
			if at <= seen || most.CompareAndSwap(seen, at) {
				break
			}
		}
		defer now.Add(-1)
		select {
		case entered <- id:
		default:
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return primary(), nil
	})
	for range engineCalls {
		<-entered
	}
	close(release)
	<-time.After(5 * shortestInterval) // in which there is time to do more than it should
	if made := calls.Load(); made != engineCalls {
		t.Errorf("%d readings are made for a client that takes none", made)
	}
	heard := map[string]bool{}
	for len(heard) < n {
		heard[(<-client.sent).SandboxId] = true
	}
	if most.Load() > engineCalls {
		t.Errorf("%d sandboxes are read at once", most.Load())
	}
}

// TestWatchStatsFault: what cannot be read of one sandbox does not keep the others from being told; without an engine
// the stream ends.
func TestWatchStatsFault(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	_, client, ended := watchStats(t, 3, shortestInterval, func(_ context.Context, id string) ([]*agboxv1.ContainerStats, error) {
		switch {
		case gone.Load():
			return nil, fmt.Errorf("%w: gone", runtime.ErrUnreachable)
		case id == "box-01":
			return nil, errors.New("a cgroup that is odd")
		}
		return primary(), nil
	})
	for range 10 {
		if told := <-client.sent; told.SandboxId == "box-01" {
			t.Errorf("of %s comes %v", told.SandboxId, told)
		}
	}
	gone.Store(true)
	for {
		select {
		case <-client.sent: // what was read before
			continue
		case err := <-ended:
			if !errors.Is(err, runtime.ErrUnreachable) {
				t.Errorf("without an engine the stream ends with %v", err)
			}
		}
		return
	}
}

func makeReady(t *testing.T, s *Fleet, id string) {
	t.Helper()
	if _, err := s.system.Create(t.Context(), id, &agboxv1.CreateSpec{Image: "image"}, ""); err != nil {
		t.Fatal(err)
	}
	wait(t, s, id, lifecycle.Ready)
}

func wait(t *testing.T, s *Fleet, id string, phase lifecycle.Phase) {
	t.Helper()
	for {
		changed := s.db.Changed(id)
		if view, err := s.system.Sandbox(id); err != nil {
			t.Fatal(err)
		} else if view.State.Phase == phase {
			return
		}
		<-changed
	}
}

// TestWatchStatsStopped: one that is stopped is read no more, whatever the engine would say of it.
func TestWatchStatsStopped(t *testing.T) {
	t.Parallel()
	s, client, _ := watchStats(t, 2, shortestInterval, func(context.Context, string) ([]*agboxv1.ContainerStats, error) {
		return primary(), nil
	})
	until := func(id string) {
		for (<-client.sent).SandboxId != id {
		}
	}
	until("box-00")
	if _, err := s.system.Request(t.Context(), "box-00", lifecycle.Stop{Reason: lifecycle.ReasonStopRequested}); err != nil {
		t.Fatal(err)
	}
	wait(t, s, "box-00", lifecycle.Stopped)
	makeReady(t, s, "later")
	until("later") // by now the stop is known
	for range 10 {
		if told := <-client.sent; told.SandboxId == "box-00" {
			t.Fatalf("after its stop comes %v", told)
		}
	}
}

// TestStatsDue: a sandbox waits for its turn once, however often it would be time.
func TestStatsDue(t *testing.T) {
	t.Parallel()
	w := &statsWatch{watched: map[string]bool{"a": true, "b": true}, busy: map[string]bool{}}
	for range 100 {
		w.want("a")
		w.want("b")
	}
	if len(w.due) != 2 {
		t.Errorf("%d turns are due", len(w.due))
	}
}

// TestStatsWeight: the containers of a sandbox count, not the sandboxes, and one with many of them is read alone.
func TestStatsWeight(t *testing.T) {
	t.Parallel()
	for services, want := range map[int]int64{0: 1, 1: 2, 3: 4, 20: engineCalls} {
		spec := &agboxv1.CreateSpec{OptionalServices: make([]*agboxv1.ServiceSpec, services/2), RequiredServices: make([]*agboxv1.ServiceSpec, services-services/2)}
		if got := statsWeight(spec); got != want {
			t.Errorf("with %d services it is %d", services, got)
		}
	}
}
