package persist_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestChangesAfter(t *testing.T) {
	db, _ := newDB(t)
	start := db.Version()
	idle := db.ChangesAfter(start)
	if idle.Version != start || idle.Changed != nil || idle.Created != nil || idle.Overflow {
		t.Errorf("before anything: %+v", idle)
	}
	must(t, db, create("box-a"))
	<-idle.Next
	must(t, db, create("box-b"), tell("box-a", 1, agboxv1.EventType_SANDBOX_READY, ""))
	if err := db.Append(create("box-a")); err == nil {
		t.Error("an id was taken twice")
	}
	changes := db.ChangesAfter(start)
	if !slices.Equal(changes.Changed, []string{"box-a", "box-b"}) || !slices.Equal(changes.Created, []string{"box-a", "box-b"}) || changes.Version != start+3 {
		t.Errorf("after two creates and an event: %+v", changes)
	}
	select {
	case <-changes.Next:
		t.Error("there is a change after the newest one")
	default:
	}
	must(t, db, tell("box-b", 1, agboxv1.EventType_SANDBOX_READY, ""))
	<-changes.Next
	if changes = db.ChangesAfter(changes.Version); !slices.Equal(changes.Changed, []string{"box-b"}) || changes.Created != nil {
		t.Errorf("after one more event: %+v", changes)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	<-changes.Next
	<-db.ChangesAfter(changes.Version).Next
}

// TestChangesOverflow: who is too far behind is told so, and still which sandboxes are new.
func TestChangesOverflow(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-old"))
	start := db.Version()
	must(t, db, create("box-new"), create("box-purged"), tell("box-purged", 1, agboxv1.EventType_SANDBOX_DELETED, ""))
	if err := db.Purge("box-purged"); err != nil {
		t.Fatal(err)
	}
	var busy sync.WaitGroup
	const writers = 64
	for i := range writers {
		busy.Go(func() {
			id := fmt.Sprintf("busy-%d", i)
			must(t, db, create(id))
			for sequence := uint64(1); sequence < 4096/writers; sequence++ {
				must(t, db, tell(id, sequence, agboxv1.EventType_SANDBOX_PREPARING, ""))
			}
		})
	}
	busy.Wait()
	newest := db.Version()
	if changes := db.ChangesAfter(newest - 4096); changes.Overflow || len(changes.Changed) != writers {
		t.Errorf("4096 changes behind: overflow %v, %d sandboxes", changes.Overflow, len(changes.Changed))
	}
	if changes := db.ChangesAfter(newest - 4097); !changes.Overflow || changes.Changed != nil {
		t.Errorf("4097 changes behind: overflow %v, %d sandboxes", changes.Overflow, len(changes.Changed))
	}
	changes := db.ChangesAfter(start)
	slices.Sort(changes.Created)
	if !changes.Overflow || changes.Changed != nil || changes.Version != newest || len(changes.Created) != writers+1 || changes.Created[0] != "box-new" {
		t.Errorf("too far behind: %+v", changes)
	}
}
