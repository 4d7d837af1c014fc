package server_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

var mine = map[string]string{"team": "a"}

// untilDeleted reads until n sandboxes are DELETED, and checks that each one's events come in order, without gap or
// duplicate, from the sequence after its entry in begin, and that all belong to the kinds.
func untilDeleted(t *testing.T, stream *raw.Stream, n int, begin map[string]uint64, kinds ...string) {
	t.Helper()
	last := map[string]uint64{}
	for left := n; left > 0; {
		event, err := stream.Recv()
		if err != nil {
			t.Errorf("with %d sandboxes left: %v", left, err)
			return
		}
		id := event.SandboxId
		kind, _, _ := strings.Cut(id, "-")
		if _, seen := last[id]; !seen {
			last[id] = begin[id]
		}
		if !strings.Contains(strings.Join(kinds, " "), kind) || event.Sequence != last[id]+1 || event.Replay || event.Snapshot {
			t.Errorf("after %d of %s comes %v", last[id], id, event)
			return
		}
		last[id] = event.Sequence
		if event.EventType == agboxv1.EventType_SANDBOX_DELETED {
			left--
		}
	}
	if len(last) != n {
		t.Errorf("%d sandboxes were heard of, want %d", len(last), n)
	}
}

// TestWatch: sandboxes that are there, that come, that go and that do not match, all busy at once.
func TestWatch(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	const n = 20
	begin := map[string]uint64{}
	each(n, "mine", func(id string) { f.create(id, mine) })
	each(n, "other", func(id string) { f.create(id, map[string]string{"team": "b"}) })
	f.create("gone", mine)
	f.remove("gone")
	for i := range n {
		begin[fmt.Sprintf("mine-%03d", i)] = 3
		begin[fmt.Sprintf("other-%03d", i)] = 3
	}
	var watchers, busy sync.WaitGroup
	for range 10 {
		some, all := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: mine}), f.watch(&agboxv1.WatchSandboxesRequest{})
		watchers.Go(func() { untilDeleted(t, some, 2*n, begin, "mine", "new") })
		watchers.Go(func() { untilDeleted(t, all, 4*n, begin, "mine", "new", "other", "late") })
	}
	life := func(id string) { f.run(id, 10); f.remove(id) }
	busy.Go(func() { each(n, "mine", life) })
	busy.Go(func() { each(n, "other", life) })
	busy.Go(func() { each(n, "new", func(id string) { f.create(id, mine); life(id) }) })
	busy.Go(func() { each(n, "late", func(id string) { f.create(id, nil); life(id) }) })
	busy.Wait()
	watchers.Wait()
}

func TestWatchSnapshot(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	f := startFleet(t, actors.Config{}, fake)
	f.create("mine-1", mine)
	f.create("other-1", nil)
	f.create("gone-1", mine)
	f.remove("gone-1")
	if _, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "mine-1", ExecId: "exec-1", Command: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	stream := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: mine, IncludeCurrentSnapshot: true})
	if _, err := f.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "mine-1"}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		kind     agboxv1.EventType
		sequence uint64
		snapshot bool
	}{
		{agboxv1.EventType_SANDBOX_READY, 4, true},
		{agboxv1.EventType_EXEC_STARTED, 4, true},
		{agboxv1.EventType_SANDBOX_STOP_REQUESTED, 5, false},
	} {
		event, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if event.SandboxId != "mine-1" || event.EventType != want.kind || event.Sequence != want.sequence || event.Snapshot != want.snapshot {
			t.Errorf("event %d is %v", i, event)
		}
	}
	fake.CancelExec(t.Context(), "mine-1", "exec-1")
}

// loud fails every command with so many words that a stream that nobody reads takes only a few of its events.
func loud(context.Context, *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
	return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Message: strings.Repeat("words ", 500)}, nil
}

// TestTrimmedAway: events that were removed before a reader came to them are a gap that is told, with what is kept now.
func TestTrimmedAway(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = loud
	f := startFleet(t, actors.Config{MaxEvents: 100}, fake)
	f.create("mine-1", mine)
	one, err := f.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "mine-1", FromSequence: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	all := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: mine})
	var runs sync.WaitGroup
	for range 10 { // together they are far more than two streams hold, and what is kept
		runs.Go(func() { f.run("mine-1", 40) })
	}
	runs.Wait()
	for what, stream := range map[string]*raw.Stream{"a subscription": one, "a watch": all} {
		last := uint64(3)
		for {
			event, err := stream.Recv()
			if err != nil {
				servertest.Refused(t, err, codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "", "begin another one, with include_current_snapshot")
				oldest, _, _ := f.db.Bounds("mine-1")
				told, _ := errors.AsType[*raw.Error](err)
				if told != nil && (told.Metadata["from_sequence"] != fmt.Sprint(last) || told.Metadata["oldest_sequence"] != fmt.Sprint(oldest)) {
					t.Errorf("%s that came to %d of what is kept from %d on is told %v", what, last, oldest, told.Metadata)
				}
				break
			}
			if event.Sequence != last+1 {
				t.Fatalf("in %s after %d comes %v", what, last, event)
			}
			last = event.Sequence
		}
	}
	// Whoever asks for all that there is has missed nothing.
	rest, err := f.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "mine-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	if event, err := rest.Recv(); err != nil || event.Sequence < 400 {
		t.Errorf("the first that is kept is %v, %v", event, err)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	stream := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: map[string]string{"": "a"}})
	_, err := stream.Recv()
	servertest.Refused(t, err, codes.InvalidArgument, "LABEL_INVALID", "label_selector", "a label has an empty key")
	stream = f.watch(&agboxv1.WatchSandboxesRequest{})
	f.stop()
	_, err = stream.Recv()
	servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
}

// BenchmarkWatch is the time until 100 watchers have heard of one exec in each of 1,000 sandboxes.
func BenchmarkWatch(b *testing.B) {
	f := startFleet(b, actors.Config{}, actorstest.New())
	const sandboxes, watchers = 1_000, 100
	each(sandboxes, "mine", func(id string) { f.create(id, mine) })
	before := goruntime.NumGoroutine()
	var streams []*raw.Stream
	for range watchers {
		streams = append(streams, f.watch(&agboxv1.WatchSandboxesRequest{}))
	}
	goroutines := float64(goruntime.NumGoroutine()-before) / watchers
	for b.Loop() {
		var reading sync.WaitGroup
		for _, stream := range streams {
			reading.Go(func() {
				for range 2 * sandboxes {
					if _, err := stream.Recv(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		each(sandboxes, "mine", func(id string) { f.run(id, 1) })
		reading.Wait()
	}
	b.ReportMetric(goroutines, "goroutines/watcher")
}
