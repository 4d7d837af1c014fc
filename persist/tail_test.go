package persist_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Whoever reads events as they are kept reads the same as everybody else, from wherever he begins, be it that somebody waits
// for each of them, that nobody does, or now and then.
func TestEncodedEvents(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	must(t, db, create("box"))
	check := func(newest uint64) {
		t.Helper()
		for after := uint64(0); after <= newest; after++ {
			for _, limit := range []int{1, 3, 1000} {
				want, err := db.Events("box", after, limit)
				if err != nil {
					t.Fatal(err)
				}
				got, err := db.EncodedEvents("box", after, limit)
				if err != nil || len(got) != len(want) {
					t.Fatalf("%d after %d: %d events and not %d: %v", limit, after, len(got), len(want), err)
				}
				for i, encoded := range got {
					event := &agboxv1.SandboxEvent{}
					if err := proto.Unmarshal(encoded.Data, event); err != nil || encoded.Sequence != want[i].Sequence || !proto.Equal(event, want[i]) {
						t.Fatalf("after %d: %v is %v and not %v: %v", after, encoded.Sequence, event, want[i], err)
					}
				}
			}
		}
	}
	newest := uint64(1)
	for round, events := range []int{1, 2, 70, 1, 63, 1, 1, 5, 200, 1} {
		if round%4 != 3 {
			_ = db.Changed("box") // somebody waits
		}
		if err := db.Append(persist.Entry{SandboxID: "box", After: newest, Events: eventsAfter("box", newest, events)}); err != nil {
			t.Fatal(err)
		}
		newest += uint64(events)
		check(newest)
	}
	if got, err := db.EncodedEvents("box", newest, 9); len(got) != 0 || err != nil {
		t.Errorf("after the newest: %v, %v", got, err)
	}
	if got, err := db.EncodedEvents("none", 0, 9); err == nil {
		t.Errorf("of no sandbox: %v", got)
	}
	must(t, db, tell("box", newest, agboxv1.EventType_SANDBOX_DELETED, ""))
	if err := db.Purge("box"); err != nil {
		t.Fatal(err)
	}
	if got, err := db.EncodedEvents("box", newest-1, 9); err == nil {
		t.Errorf("of a purged one: %v", got)
	}
}

func eventsAfter(id string, after uint64, n int) (events []*agboxv1.SandboxEvent) {
	for range n {
		after++
		events = append(events, &agboxv1.SandboxEvent{SandboxId: id, Sequence: after, EventId: fmt.Sprintf("%s-%d", id, after)})
	}
	return events
}
