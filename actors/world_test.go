package actors_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestMain(m *testing.M) {
	// The actor library's dead-letter throttle ends by a timer of its own.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// world is an actor system on a real database and a runtime without Docker, in a bubble of its own time.
type world struct {
	t       *testing.T
	system  *actors.System
	runtime *actorstest.Runtime
	config  actors.Config
	path    string
	db      *persist.DB
	logger  *slog.Logger // nil for the test's own output
}

// inWorld runs test in a bubble: there, time passes only while everything waits.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ids.db")
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, runtime: actorstest.New(), path: path}
		w.start()
		test(t, w)
		w.end()
		if overlaps := w.runtime.Overlaps(); len(overlaps) > 0 {
			t.Errorf("operations overlapped: %v", overlaps)
		}
		time.Sleep(2 * time.Second) // the actor library's dead-letter throttle ends by a timer
	})
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.db, err = persist.Open(w.path); err != nil {
		w.t.Fatal(err)
	}
	log := w.logger
	if log == nil {
		log = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	}
	if w.system, err = actors.Start(w.config, w.db, w.runtime, log); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) end() {
	w.t.Helper()
	w.system.Shutdown(context.Background())
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) restart() {
	w.t.Helper()
	w.end()
	w.start()
}

func (w *world) create(id string, spec *agboxv1.CreateSpec) {
	w.t.Helper()
	if _, err := w.system.Create(w.t.Context(), id, spec, ""); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) request(id string, c lifecycle.Command) {
	w.t.Helper()
	if _, err := w.system.Request(w.t.Context(), id, c); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) exec(id, exec string) {
	w.t.Helper()
	request := &agboxv1.CreateExecRequest{SandboxId: id, ExecId: exec, Command: []string{"true"}}
	if err := w.system.StartExec(w.t.Context(), request, ""); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// log is the sandbox's history, a word for each event.
func (w *world) log(id string) string {
	w.t.Helper()
	events, err := w.db.Events(id, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var words []string
	for _, e := range events {
		words = append(words, strings.TrimPrefix(e.EventType.String(), "SANDBOX_"))
	}
	return strings.Join(words, " ")
}

func (w *world) expect(id, log string) {
	w.t.Helper()
	if got := w.log(id); got != log {
		w.t.Errorf("the log of %s is\n  %s, want\n  %s", id, got, log)
	}
}

// gate blocks the calls it is asked about until they are let go, or their context ends.
type gate struct {
	call string
	open chan error
}

func (g *gate) before(ctx context.Context, call string) error {
	if call != g.call {
		return nil
	}
	select {
	case err := <-g.open:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) gate(call string) *gate {
	g := &gate{call: call, open: make(chan error)}
	w.runtime.Before = g.before
	return g
}
