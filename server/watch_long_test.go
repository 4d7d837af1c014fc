//go:build long

package server_test

import (
	"fmt"
	"testing"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestLongWatchUnread: a watch that is not read for longer than changes are remembered still tells everything, also of
// sandboxes that came, or came and went, meanwhile.
func TestLongWatchUnread(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = loud
	f := startFleet(t, actors.Config{}, fake)
	const n = 40
	begin := map[string]uint64{}
	each(n, "mine", func(id string) { f.create(id, mine) })
	each(n, "other", func(id string) { f.create(id, nil) })
	for i := range n {
		begin[fmt.Sprintf("mine-%03d", i)] = 3
	}
	stream := f.watch(&agboxv1.WatchSandboxesRequest{LabelSelector: mine})
	start := f.db.Version()
	each(n, "mine", func(id string) { f.run(id, 2) })
	each(n/2, "mine", f.remove)
	each(n, "new", func(id string) { f.create(id, mine); f.run(id, 1) })
	for f.db.Version() < start+2*4096 {
		each(n, "other", func(id string) { f.run(id, 10) })
	}
	f.run("mine-039", 100)
	f.fill("new-whole", 64)
	each(n, "mine", f.remove)
	each(n, "new", f.remove)
	untilDeleted(t, stream, 2*n+1, begin, "mine", "new")
}

// fill has a sandbox with a history of so many events, an even number, the last of which is SANDBOX_DELETED.
func (f *fleet) fill(id string, events int) {
	f.t.Helper()
	_, err := f.CreateSandbox(f.t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
		Image: "image", Labels: mine, OptionalServices: []*agboxv1.ServiceSpec{{Name: "side", Image: "image"}}}})
	if err != nil {
		f.t.Fatal(err)
	}
	stream, err := f.SubscribeSandboxEvents(f.t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		f.t.Fatal(err)
	}
	defer stream.Close()
	for kind := agboxv1.EventType(0); kind != agboxv1.EventType_SANDBOX_SERVICE_READY; {
		event, err := stream.Recv()
		if err != nil {
			f.t.Fatal(err)
		}
		kind = event.EventType
	}
	f.run(id, (events-6)/2)
	f.remove(id)
	if _, newest, err := f.db.Bounds(id); err != nil || newest != uint64(events) {
		f.t.Fatalf("the history has %d events, %v; want %d", newest, err, events)
	}
}
