package persist

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ExecName says which exec of which sandbox, and when it was accepted.
type ExecName struct {
	SandboxID, ExecID string
	At                time.Time
}

// NewestExecs returns up to limit execs whose history is kept, those accepted last first: of one sandbox, or of all
// where sandboxID is "", and with any of the states, or with any at all where none is given. It holds no more than
// twice the limit in memory, reads one sandbox in one transaction, and fails with ctx's error when that ends. A sandbox
// that does not exist has none.
func (db *DB) NewestExecs(ctx context.Context, sandboxID string, states []agboxv1.ExecState, limit int) ([]ExecName, error) {
	sandboxes := []string{sandboxID}
	if sandboxID == "" {
		var err error
		if sandboxes, err = db.sandboxIDs(); err != nil {
			return nil, err
		}
	}
	found := newest{limit: limit}
	for _, id := range sandboxes {
		if err := db.view(func(tx *bbolt.Tx) error { return found.scan(ctx, tx, id, states) }); err != nil {
			return nil, err
		}
	}
	found.cut()
	return found.names, nil
}

func (db *DB) sandboxIDs() ([]string, error) {
	var ids []string
	err := db.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(configs).ForEach(func(id, _ []byte) error {
			ids = append(ids, string(id))
			return nil
		})
	})
	return ids, err
}

// newest keeps the newest of the names that are added to it.
type newest struct {
	limit int
	names []ExecName
	// floor is when the oldest one was accepted that can still count.
	floor time.Time
}

// scanStep is after how many execs a scan looks whether somebody still waits for it: about a millisecond.
const scanStep = 1024

func (n *newest) scan(ctx context.Context, tx *bbolt.Tx, sandboxID string, states []agboxv1.ExecState) error {
	requests := tx.Bucket(execConfigsOf(sandboxID))
	if requests == nil {
		return ctx.Err()
	}
	times, seen := tx.Bucket(execIDs), 0
	return requests.ForEach(func(execID, _ []byte) error {
		if seen++; seen%scanStep == 1 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := decodeTime(times.Get(execID))
		if at.Before(n.floor) {
			return nil
		}
		if len(states) > 0 {
			if is, err := inState(tx, sandboxID, string(execID), states); err != nil || !is {
				return err
			}
		}
		n.add(ExecName{sandboxID, string(execID), at})
		return nil
	})
}

func (n *newest) add(name ExecName) {
	if n.names = append(n.names, name); len(n.names) >= 2*n.limit {
		n.cut()
	}
}

func (n *newest) cut() {
	slices.SortFunc(n.names, func(a, b ExecName) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.ExecID, b.ExecID))
	})
	if len(n.names) >= n.limit {
		n.names = n.names[:n.limit]
		n.floor = n.names[n.limit-1].At
	}
}

func inState(tx *bbolt.Tx, sandboxID, execID string, states []agboxv1.ExecState) (bool, error) {
	const running = agboxv1.ExecState_EXEC_STATE_RUNNING
	if tx.Bucket(execEnds).Get([]byte(execID)) == nil {
		return slices.Contains(states, running), nil
	}
	if !slices.ContainsFunc(states, func(s agboxv1.ExecState) bool { return s != running }) {
		return false, nil
	}
	end, err := readEnd(tx, execID)
	if err != nil {
		return false, err
	}
	event := &agboxv1.SandboxEvent{}
	if err := proto.Unmarshal(tx.Bucket(eventsOf(sandboxID)).Get(encodeUint(end.Sequence)), event); err != nil {
		return false, fmt.Errorf("%w: end of exec %s: %w", ErrCorrupt, execID, err)
	}
	return slices.Contains(states, event.GetExec().GetExecState()), nil
}
