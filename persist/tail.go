package persist

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"
)

// Encoded is an event as it is kept: a marshalled SandboxEvent, which belongs to all who read it and must not be changed.
type Encoded struct {
	Sequence uint64
	Data     []byte
}

// tailSize is how many of the newest events of a sandbox are in memory for those who wait for them.
const tailSize = 64

// tail is the newest events of one sandbox, without a gap: a thousand who wait for the next one read it here, and the database once
// each when they begin, or have fallen behind.
type tail []Encoded

// after returns up to limit events after a sequence; false where the tail does not reach back that far.
func (t tail) after(sequence uint64, limit int) ([]Encoded, bool) {
	if len(t) == 0 || sequence+1 < t[0].Sequence || sequence > t[len(t)-1].Sequence {
		return nil, false
	}
	rest := t[sequence+1-t[0].Sequence:]
	return rest[:min(limit, len(rest))], true
}

// with returns the tail that more follows on. The array of the old one is left as it is, for those who read it.
func (t tail) with(more []Encoded) tail {
	if len(t) > 0 && t[len(t)-1].Sequence+1 != more[0].Sequence {
		t = nil
	}
	return append(t[max(0, min(len(t), len(t)+len(more)-tailSize)):len(t):len(t)], more...)
}

// EncodedEvents is Events for who passes them on as they are.
func (db *DB) EncodedEvents(sandboxID string, after uint64, limit int) ([]Encoded, error) {
	if list, found := db.changes.recent(sandboxID, after, limit); found {
		return list, nil
	}
	var list []Encoded
	err := db.view(func(tx *bbolt.Tx) error {
		events := tx.Bucket(eventsOf(sandboxID))
		if events == nil {
			return fmt.Errorf("%w: %s", ErrNoSandbox, sandboxID)
		}
		cursor := events.Cursor()
		for key, value := cursor.Seek(encodeUint(after + 1)); key != nil && len(list) < limit; key, value = cursor.Next() {
			list = append(list, Encoded{decodeUint(key), bytes.Clone(value)})
		}
		return nil
	})
	return list, err
}

func (c *changes) recent(sandboxID string, after uint64, limit int) ([]Encoded, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tails[sandboxID].after(after, limit)
}

// keep has what was recorded of a sandbox at hand for those who wait, if any do; c.mu is held.
func (c *changes) keep(sandboxID string, recorded []Encoded, waited bool) {
	if !waited || len(recorded) == 0 {
		delete(c.tails, sandboxID)
		return
	}
	c.tails[sandboxID] = c.tails[sandboxID].with(recorded)
}
