package checker

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Log checks that everything clients were told is in the database, which no daemon may have open. It may be
// called in any state of things, best right after a daemon was killed. It fails with ErrUnreadable.
func (c *Checker) Log(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	defer db.Close()
	c.nextLife()
	logs := map[string][]*agboxv1.SandboxEvent{}
	newest := map[string]uint64{}
	c.Record.mu.Lock()
	defer c.Record.mu.Unlock()
	err = db.View(func(tx *bbolt.Tx) error {
		if err := c.judgePlaces(tx); err != nil {
			return err
		}
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			id, isLog := strings.CutPrefix(string(name), "events:")
			if !isLog {
				return nil
			}
			if s := c.Record.sandboxes[id]; s != nil && s.settled {
				last, _ := bucket.Cursor().Last()
				newest[id] = sequence(last)
				return nil
			}
			var err error
			logs[id], err = c.read(id, bucket)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	for id, s := range c.Record.sandboxes {
		if s.settled {
			if gone := newest[id] == 0 && c.Retention > 0; newest[id] != s.newest && !gone {
				c.report.add(BrokenLog, id, "it was DELETED at %d, and its log now ends at %d", s.newest, newest[id])
			}
			continue
		}
		c.judge(s, newHistory(id, logs[id], c.report))
	}
	return nil
}

func (c *Checker) read(id string, bucket *bbolt.Bucket) ([]*agboxv1.SandboxEvent, error) {
	var events []*agboxv1.SandboxEvent
	err := bucket.ForEach(func(key, value []byte) error {
		event := &agboxv1.SandboxEvent{}
		if err := proto.Unmarshal(value, event); err != nil {
			return err
		}
		if n := sequence(key); n != event.Sequence {
			c.report.add(BrokenLog, id, "event %d is kept as %d", event.Sequence, n)
		}
		events = append(events, event)
		return nil
	})
	return events, err
}

func sequence(key []byte) (n uint64) {
	for _, b := range key {
		n = n<<8 | uint64(b)
	}
	return n
}
