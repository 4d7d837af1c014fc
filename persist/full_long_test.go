//go:build long

package persist_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestLongFullDiskLargeDatabase tells how long a burst of 100 sandboxes waits for its refusal on a full disk, with 500 MB of
// history, and whether all goes on once there is room.
func TestLongFullDiskLargeDatabase(t *testing.T) {
	dir := smallDisk(t, "size=1100m")
	db := open(t, filepath.Join(dir, "ids.db"))
	const sandboxes, events = 100, 250
	large := strings.Repeat("y", 20_000)
	for i := range sandboxes {
		id := fmt.Sprintf("box-%02d", i)
		must(t, db, create(id))
		var entries []persist.Entry
		for n := uint64(1); n < events; n++ {
			e := tell(id, n, agboxv1.EventType_SANDBOX_PREPARING, "")
			e.Events[0].EventId = large
			entries = append(entries, e)
		}
		if err := errors.Join(db.AppendAll(entries)...); err != nil {
			t.Fatal(err)
		}
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<16); err == nil; {
		_, err = filler.Write(chunk)
	}
	filler.Close()
	for round := range 3 {
		began := time.Now()
		refused := 0
		var group sync.WaitGroup
		var mu sync.Mutex
		for i := range sandboxes {
			group.Go(func() {
				e := tell(fmt.Sprintf("box-%02d", i), events, agboxv1.EventType_SANDBOX_PREPARING, "")
				e.Events[0].EventId = strings.Repeat(large, 40)
				if err := db.Append(e); errors.Is(err, persist.ErrNoSpace) {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		t.Logf("round %d: %d of %d refused after %v", round, refused, sandboxes, time.Since(began).Round(time.Millisecond))
		if refused == 0 {
			t.Error("nobody was refused")
		}
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	for i := range sandboxes {
		id := fmt.Sprintf("box-%02d", i)
		_, newest, err := db.Bounds(id)
		if err != nil {
			t.Fatal(err)
		}
		must(t, db, tell(id, newest, agboxv1.EventType_SANDBOX_READY, ""))
	}
}
