package checker_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// world is a good life of sandbox "box" with exec "run", as clients were told it and as it is on disk; a case breaks
// one thing of it.
type world struct {
	record *checker.Record
	log    []*agboxv1.SandboxEvent
	told   []*agboxv1.SandboxEvent
	from   uint64
	stdout string
	result *protocol.Result
	faults bool

	maxEvents uint64
	retention time.Duration
}

func event(n uint64, kind agboxv1.EventType, state agboxv1.SandboxState) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventId: fmt.Sprintf("box/%d", n), Sequence: n, SandboxId: "box", EventType: kind,
		SandboxState: state, OccurredAt: timestamppb.Now()}
}

func execEvent(n uint64, kind agboxv1.EventType, state agboxv1.ExecState, code int32) *agboxv1.SandboxEvent {
	e := event(n, kind, ready)
	e.Details = &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ExecId: "run", ExecState: state, ExitCode: code,
		StartedAt: timestamppb.Now(), EndedAt: timestamppb.Now()}}
	return e
}

func good() *world {
	w := &world{record: checker.NewRecord(), stdout: "1\n2\n3\n"}
	w.log = []*agboxv1.SandboxEvent{
		event(1, agboxv1.EventType_SANDBOX_ACCEPTED, pending),
		event(2, agboxv1.EventType_SANDBOX_PREPARING, pending),
		event(3, agboxv1.EventType_SANDBOX_READY, ready),
		execEvent(4, agboxv1.EventType_EXEC_STARTED, agboxv1.ExecState_EXEC_STATE_RUNNING, 0),
		execEvent(5, agboxv1.EventType_EXEC_FINISHED, agboxv1.ExecState_EXEC_STATE_FINISHED, 7),
	}
	for _, e := range w.log {
		e = proto.CloneOf(e)
		e.Replay = e.Sequence < 3
		w.told = append(w.told, e)
	}
	w.record.Ask("box", checker.Create)
	w.record.Accepted("box", checker.Create)
	w.record.AskExec("box", "run", checker.Want{ExitCode: 7, Stdout: 3})
	w.record.AcceptedExec("box", "run")
	return w
}

// removed deletes the sandbox, which a client is told.
func (w *world) removed() {
	w.record.Ask("box", checker.Delete)
	w.record.Accepted("box", checker.Delete)
	w.told = append(w.told, event(6, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting), event(7, agboxv1.EventType_SANDBOX_DELETED, deleted))
}

// check writes the world to disk and returns the kinds of what is wrong with it.
func (w *world) check(t *testing.T) []checker.Kind {
	t.Helper()
	dir := t.TempDir()
	write := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("exec-logs/box/run.stdout.log", []byte(w.stdout))
	write("exec-logs/box/run.stderr.log", nil)
	if w.result != nil {
		write("exec-results/box/run", protocol.EncodeRecord(w.result))
	}
	stream := w.record.Stream("box", w.from)
	for _, e := range w.told {
		stream.Add(e)
	}
	c := checker.New(w.record, nil, nil, dir)
	c.Faults, c.MaxEvents, c.Retention = w.faults, w.maxEvents, w.retention
	path := filepath.Join(dir, "ids.db")
	w.write(t, path)
	for range 2 { // what is found twice is one thing
		if err := c.Log(path); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []checker.Kind
	for _, v := range c.Report().Violations() {
		if t.Log(v); !slices.Contains(kinds, v.Kind) {
			kinds = append(kinds, v.Kind)
		}
	}
	slices.Sort(kinds) // as text
	return kinds
}

func (w *world) write(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte("events:box"))
		for _, e := range w.log {
			value, _ := proto.Marshal(e)
			if err := bucket.Put(binary.BigEndian.AppendUint64(nil, e.Sequence), value); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLog(t *testing.T) {
	end := func(w *world) *agboxv1.ExecEventDetails { return w.log[4].GetExec() }
	// failure makes the exec's end, in the log and as told, one that was FAILED.
	failure := func(w *world) {
		for _, e := range []*agboxv1.SandboxEvent{w.log[4], w.told[4]} {
			e.EventType = agboxv1.EventType_EXEC_FAILED
			e.GetExec().ExecState, e.GetExec().ErrorCode = agboxv1.ExecState_EXEC_STATE_FAILED, "EXEC_RESULT_LOST"
		}
	}
	cancelled := func(w *world) {
		for _, e := range []*agboxv1.SandboxEvent{w.log[4], w.told[4]} {
			e.EventType = agboxv1.EventType_EXEC_CANCELLED
			e.GetExec().ExecState = agboxv1.ExecState_EXEC_STATE_CANCELLED
		}
		w.stdout = "1\n"
	}
	tests := []struct {
		name  string
		spoil func(*world)
		want  []checker.Kind
	}{
		{"nothing", func(*world) {}, nil},
		{"a client that follows from the middle", func(w *world) { w.from, w.told = 2, w.told[2:] }, nil},
		{"a client that was told less", func(w *world) { w.told = w.told[:2] }, nil},
		{"told with a gap", func(w *world) { w.told = append(w.told[:1], w.told[2:]...) }, []checker.Kind{checker.Gap}},
		{"told twice", func(w *world) { w.told = append(w.told[:2], w.told[1:]...) }, []checker.Kind{checker.Duplicate}},
		{"told and not logged", func(w *world) { w.log = w.log[:3]; w.told = w.told[:4] },
			[]checker.Kind{checker.LostOperation, checker.LostEvent}},
		{"told otherwise", func(w *world) { w.told[1].EventId = "other" }, []checker.Kind{checker.LostEvent}},
		{"a gap in the log", func(w *world) { w.log[3].Sequence = 9; w.log[4].Sequence = 10; w.told = nil }, []checker.Kind{checker.Gap}},
		{"wrong exit code", func(w *world) { end(w).ExitCode = 8; w.told = nil }, []checker.Kind{checker.WrongExitCode}},
		{"ended by a signal", func(w *world) { end(w).Signal = 9; w.told = nil }, []checker.Kind{checker.WrongExitCode}},
		{"no times", func(w *world) { end(w).StartedAt = nil; w.told = nil }, []checker.Kind{checker.LostExitCode}},
		{"result lost", failure, []checker.Kind{checker.LostExitCode}},
		{"result lost where the container was killed", func(w *world) { failure(w); w.record.Killed("box") }, nil},
		{"result lost though it is on disk", func(w *world) {
			failure(w)
			w.record.Killed("box")
			w.result = &protocol.Result{ID: "run", ExitCode: 7}
		}, []checker.Kind{checker.LostExitCode}},
		{"cancelled by nobody", cancelled, []checker.Kind{checker.LostExitCode}},
		{"cancelled as asked", func(w *world) { cancelled(w); w.record.AskCancel("box", "run") }, nil},
		{"cancelled with output that it did not write", func(w *world) {
			cancelled(w)
			w.record.AskCancel("box", "run")
			w.stdout = "1\n3\n"
		}, []checker.Kind{checker.WrongOutput}},
		{"output cut", func(w *world) { w.stdout = "1\n2\n" }, []checker.Kind{checker.WrongOutput}},
		{"output twice", func(w *world) { w.stdout += w.stdout }, []checker.Kind{checker.WrongOutput}},
		{"exec lost", func(w *world) { w.log = w.log[:3]; w.told = nil }, []checker.Kind{checker.LostOperation}},
		{"exec that runs", func(w *world) { w.log, w.told = w.log[:4], w.told[:4] }, nil},
		{"trimmed", func(w *world) { w.log, w.maxEvents = w.log[2:], 3 }, nil},
		{"trimmed in the middle of a command", func(w *world) { w.log, w.maxEvents = w.log[4:], 1 }, nil},
		{"trimmed, and told otherwise", func(w *world) { w.log, w.maxEvents = w.log[2:], 3; w.told[2].EventId = "other" },
			[]checker.Kind{checker.LostEvent}},
		{"trimmed too far", func(w *world) { w.log, w.maxEvents = w.log[3:], 3 }, []checker.Kind{checker.LostEvent}},
		{"trimmed by nobody", func(w *world) { w.log = w.log[2:] }, []checker.Kind{checker.LostEvent}},
		{"purged", func(w *world) { w.removed(); w.log, w.retention = nil, time.Nanosecond }, nil},
		{"purged too early", func(w *world) { w.removed(); w.log, w.retention = nil, time.Hour }, []checker.Kind{checker.LostOperation, checker.LostEvent}},
		{"paused by nobody", func(w *world) {
			w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, ready), event(7, agboxv1.EventType_SANDBOX_PAUSED, paused))
		}, []checker.Kind{checker.BrokenLog}},
		{"a pause that was accepted and is lost", func(w *world) {
			w.record.Ask("box", checker.Pause)
			w.record.Accepted("box", checker.Pause)
		}, []checker.Kind{checker.LostOperation}},
		{"stop lost", func(w *world) { w.record.Ask("box", checker.Stop); w.record.Accepted("box", checker.Stop) },
			[]checker.Kind{checker.LostOperation}},
		{"stop asked for and not accepted", func(w *world) { w.record.Ask("box", checker.Stop) }, nil},
		{"sandbox lost", func(w *world) { w.log, w.told = nil, nil }, []checker.Kind{checker.LostOperation}},
		{"deleted by nobody", func(w *world) {
			w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting), event(7, agboxv1.EventType_SANDBOX_DELETED, deleted))
		}, []checker.Kind{checker.BrokenLog}},
		{"deleted as asked", func(w *world) {
			w.record.Ask("box", checker.Delete)
			w.record.Accepted("box", checker.Delete)
			w.record.Accepted("box", checker.Delete)
			w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting), event(7, agboxv1.EventType_SANDBOX_DELETED, deleted))
		}, nil},
		{"alive after the end", func(w *world) {
			w.record.Ask("box", checker.Delete)
			w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting),
				event(7, agboxv1.EventType_SANDBOX_DELETED, deleted), event(8, agboxv1.EventType_SANDBOX_READY, ready))
		}, []checker.Kind{checker.BrokenLog}},
		{"ready from nowhere", func(w *world) { w.log[1].EventType = agboxv1.EventType_SANDBOX_STOPPED; w.told = nil }, []checker.Kind{checker.BrokenLog}},
		{"a state that is not the event's", func(w *world) { w.log[2].SandboxState = failed; w.told = nil }, []checker.Kind{checker.BrokenLog}},
		{"ended twice", func(w *world) {
			w.log = append(w.log, execEvent(6, agboxv1.EventType_EXEC_FINISHED, agboxv1.ExecState_EXEC_STATE_FINISHED, 7))
		}, []checker.Kind{checker.BrokenLog}},
		{"failed without a cause", func(w *world) { w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_FAILED, failed)) },
			[]checker.Kind{checker.Unexplained}},
		{"failed on a failing engine", func(w *world) {
			w.log = append(w.log, event(6, agboxv1.EventType_SANDBOX_FAILED, failed))
			w.faults = true
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := good()
			test.spoil(w)
			if got := w.check(t); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	for lines, want := range map[checker.Lines]string{0: "", 1: "1\n", 11: "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n"} {
		if got := lines.String(); got != want {
			t.Errorf("%d lines are %q", int(lines), got)
		}
	}
}

func TestPrint(t *testing.T) {
	report := checker.New(checker.NewRecord(), nil, nil, "").Report()
	report.Add(checker.Stuck, "box", "it hangs")
	report.Add(checker.Stuck, "box", "it hangs")
	var figures, details strings.Builder
	if err := report.Print(&figures); err != nil {
		t.Fatal(err)
	}
	if err := report.Details(&details); err != nil {
		t.Fatal(err)
	}
	for _, kind := range checker.Kinds {
		want := "0"
		if kind == checker.Stuck {
			want = "1"
		}
		if !slices.ContainsFunc(strings.Split(figures.String(), "\n"), func(line string) bool {
			return strings.HasPrefix(line, string(kind)) && strings.HasSuffix(line, " "+want)
		}) {
			t.Errorf("no line for %q with %s in\n%s", kind, want, &figures)
		}
	}
	if got := details.String(); got != "sandboxes that came to no rest: box: it hangs\n" {
		t.Errorf("details are %q", got)
	}
}
