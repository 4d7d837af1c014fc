package persist

import (
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Sandbox is what is recorded about a sandbox beside its events.
type Sandbox struct {
	ID        string
	Spec      *agboxv1.CreateSpec
	DeletedAt time.Time // zero while it is not DELETED
	RequestID string    // "" where the create carried none
	Place     string    // that it took, "" for none, or once it is DELETED
}

// Exec is what is recorded about an exec.
type Exec struct {
	Request *agboxv1.CreateExecRequest
	// End is the event that ended it, nil while it runs.
	End *agboxv1.SandboxEvent
	// CancelRequested: a cancel was accepted and has not taken effect yet.
	CancelRequested bool
	RequestID       string // "" where the request carried none
	// Newest is the sandbox's newest sequence as of the same moment.
	Newest uint64
}

// Sandboxes returns every sandbox whose history is kept, in the order of their ids.
func (db *DB) Sandboxes() ([]Sandbox, error) {
	var list []Sandbox
	err := db.view(func(tx *bbolt.Tx) error {
		deleted := tx.Bucket(deletedTimes)
		return tx.Bucket(configs).ForEach(func(id, value []byte) error {
			s := Sandbox{ID: string(id), Spec: &agboxv1.CreateSpec{}}
			if err := proto.Unmarshal(value, s.Spec); err != nil {
				return fmt.Errorf("%w: spec of sandbox %s: %w", ErrCorrupt, id, err)
			}
			if at := deleted.Get(id); at != nil {
				s.DeletedAt = decodeTime(at)
			}
			s.RequestID = readMark(tx.Bucket(marks), id)
			s.Place = string(tx.Bucket(takenPlaces).Get(id))
			list = append(list, s)
			return nil
		})
	})
	return list, err
}

// Events returns up to limit events of the sandbox with a sequence greater than after, oldest first, and none
// when there are no more. It fails with ErrNoSandbox when there is no such history.
func (db *DB) Events(sandboxID string, after uint64, limit int) ([]*agboxv1.SandboxEvent, error) {
	var list []*agboxv1.SandboxEvent
	err := db.view(func(tx *bbolt.Tx) error {
		events := tx.Bucket(eventsOf(sandboxID))
		if events == nil {
			return fmt.Errorf("%w: %s", ErrNoSandbox, sandboxID)
		}
		cursor := events.Cursor()
		for key, value := cursor.Seek(encodeUint(after + 1)); key != nil && len(list) < limit; key, value = cursor.Next() {
			event := &agboxv1.SandboxEvent{}
			if err := proto.Unmarshal(value, event); err != nil {
				return fmt.Errorf("%w: event %d of sandbox %s: %w", ErrCorrupt, decodeUint(key), sandboxID, err)
			}
			list = append(list, event)
		}
		return nil
	})
	return list, err
}

// Bounds returns the oldest and the newest sequence that are kept of a sandbox, or ErrNoSandbox.
func (db *DB) Bounds(sandboxID string) (oldest, newest uint64, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		events := tx.Bucket(eventsOf(sandboxID))
		if events == nil {
			return fmt.Errorf("%w: %s", ErrNoSandbox, sandboxID)
		}
		key, _ := events.Cursor().First()
		oldest, newest = decodeUint(key), newestSequence(events)
		return nil
	})
	return oldest, newest, err
}

// Exec returns what is recorded about an exec of the sandbox, or ErrNoExec.
func (db *DB) Exec(sandboxID, execID string) (Exec, error) {
	exec := Exec{Request: &agboxv1.CreateExecRequest{}}
	err := db.view(func(tx *bbolt.Tx) error {
		var request []byte
		if requests := tx.Bucket(execConfigsOf(sandboxID)); requests != nil {
			request = requests.Get([]byte(execID))
		}
		if request == nil {
			return fmt.Errorf("%w: %s", ErrNoExec, execID)
		}
		if err := proto.Unmarshal(request, exec.Request); err != nil {
			return fmt.Errorf("%w: request of exec %s: %w", ErrCorrupt, execID, err)
		}
		if cancels := tx.Bucket(execCancelsOf(sandboxID)); cancels != nil {
			exec.CancelRequested = cancels.Get([]byte(execID)) != nil
		}
		exec.RequestID = readMark(tx.Bucket(execMarksOf(sandboxID)), []byte(execID))
		events := tx.Bucket(eventsOf(sandboxID))
		exec.Newest = newestSequence(events)
		end, err := readEnd(tx, execID)
		if err != nil || end == nil {
			return err
		}
		exec.End = &agboxv1.SandboxEvent{}
		if err := proto.Unmarshal(events.Get(encodeUint(end.Sequence)), exec.End); err != nil {
			return fmt.Errorf("%w: end of exec %s: %w", ErrCorrupt, execID, err)
		}
		return nil
	})
	return exec, err
}

// Checkpoint returns the newest checkpoint of the sandbox's log, nil when there is none.
func (db *DB) Checkpoint(sandboxID string) (*journalv1.State, error) {
	var checkpoint *journalv1.State
	err := db.view(func(tx *bbolt.Tx) error {
		value := tx.Bucket(checkpoints).Get([]byte(sandboxID))
		if value == nil {
			return nil
		}
		checkpoint = &journalv1.State{}
		if err := proto.Unmarshal(value, checkpoint); err != nil {
			return fmt.Errorf("%w: checkpoint of sandbox %s: %w", ErrCorrupt, sandboxID, err)
		}
		return nil
	})
	return checkpoint, err
}

// readMark returns "" where there is none, or no bucket for them.
func readMark(marks *bbolt.Bucket, id []byte) string {
	if marks == nil {
		return ""
	}
	key := &journalv1.IdempotencyKey{}
	if err := proto.Unmarshal(marks.Get(id), key); err != nil {
		return ""
	}
	return key.RequestId
}

// ExecOwner returns the sandbox of an exec that runs or has ended, and ErrNoExec when there is none, or its history is gone.
// One that runs takes a look at every sandbox.
func (db *DB) ExecOwner(execID string) (sandboxID string, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		end, err := readEnd(tx, execID)
		if err != nil || end != nil {
			sandboxID = end.GetSandboxId()
			return err
		}
		if tx.Bucket(execIDs).Get([]byte(execID)) != nil {
			sandboxes := tx.Bucket(configs).Cursor()
			for id, _ := sandboxes.First(); id != nil; id, _ = sandboxes.Next() {
				if requests := tx.Bucket(execConfigsOf(string(id))); requests != nil && requests.Get([]byte(execID)) != nil {
					sandboxID = string(id)
					return nil
				}
			}
		}
		return fmt.Errorf("%w: %s", ErrNoExec, execID)
	})
	return sandboxID, err
}

// readEnd returns nil for an exec that has not ended.
func readEnd(tx *bbolt.Tx, execID string) (*journalv1.ExecEnd, error) {
	value := tx.Bucket(execEnds).Get([]byte(execID))
	if value == nil {
		return nil, nil
	}
	end := &journalv1.ExecEnd{}
	if err := proto.Unmarshal(value, end); err != nil {
		return nil, fmt.Errorf("%w: end of exec %s: %w", ErrCorrupt, execID, err)
	}
	return end, nil
}

// PendingSnapshot returns the sandbox that has announced a snapshot with this id which has not ended, "" where there is none.
func (db *DB) PendingSnapshot(snapshotID string) (sandboxID string, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		sandboxID = string(tx.Bucket(snapshots).Get([]byte(snapshotID)))
		return nil
	})
	return sandboxID, err
}

// Changed returns a channel that is closed at the next change of the sandbox's history, its purge and the
// closing of the database included. Take it before reading: what is recorded in between then still wakes.
func (db *DB) Changed(sandboxID string) <-chan struct{} {
	return db.changes.wait(sandboxID)
}

type changes struct {
	mu      sync.Mutex
	closed  bool
	waiting map[string]chan struct{}
	tails   map[string]tail
	feed    feed
}

func (c *changes) wait(sandboxID string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.waiting[sandboxID]
	if ch == nil {
		ch = make(chan struct{})
		if c.closed {
			close(ch)
			return ch
		}
		c.waiting[sandboxID] = ch
	}
	return ch
}

func (c *changes) wake(sandboxID string, created bool, recorded []Encoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feed.add(change{sandboxID, created})
	ch := c.waiting[sandboxID]
	c.keep(sandboxID, recorded, ch != nil)
	if ch != nil {
		close(ch)
		delete(c.waiting, sandboxID)
	}
}

func (c *changes) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, ch := range c.waiting {
		close(ch)
	}
	clear(c.waiting)
	if c.feed.next != nil {
		close(c.feed.next)
		c.feed.next = nil
	}
}
