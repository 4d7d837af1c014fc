package chaos_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// crashpoints builds the daemon that can be told where to die, once.
var crashpoints = sync.OnceValues(chaos.Build)

const (
	ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED
)

// life is one sandbox's whole life, with a daemon that dies once in it.
type life struct {
	t       *testing.T
	ctx     context.Context
	daemon  *chaos.Daemon
	proxy   *proxy.Proxy
	client  *raw.Client
	record  *checker.Record
	checker *checker.Checker
	spec    *agboxv1.CreateSpec
	id      string
	// last is the newest event that was told.
	last *agboxv1.SandboxEvent
	// crashed: the daemon has died and was started again. The life is cut short then.
	crashed bool
}

func newLife(t *testing.T, engine *client.Client) *life {
	t.Helper()
	binary, err := crashpoints()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	l := &life{t: t, ctx: ctx, record: checker.NewRecord()}
	l.spec = &agboxv1.CreateSpec{Image: dockertest.TinyImage(t, engine, dockertest.Busybox)}
	l.id = "crash-" + strings.TrimPrefix(filepath.Base(dir), "agbox")
	if l.proxy, err = proxy.New(strings.TrimPrefix(engine.DaemonHost(), "unix://"), filepath.Join(dir, "p"), 1); err != nil {
		t.Fatal(err)
	}
	if l.daemon, err = chaos.NewDaemon(binary, dir, l.proxy.Host()); err != nil {
		t.Fatal(err)
	}
	if l.client, err = raw.Dial(raw.WithSocket(l.daemon.Socket())); err != nil {
		t.Fatal(err)
	}
	l.checker = checker.New(l.record, l.client, engine, l.daemon.Data())
	t.Cleanup(func() {
		l.daemon.End()
		err := errors.Join(l.checker.Sweep(context.Background()), l.client.Close(), l.proxy.Close())
		if t.Failed() {
			t.Logf("see %s", dir)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		cancel()
		if err != nil {
			t.Error(err)
		}
	})
	return l
}

// live goes through a whole life, or until the daemon has died and what was under way has come to its end, and
// then deletes the sandbox. It reports whether the daemon died.
func (l *life) live(env ...string) bool {
	l.t.Helper()
	if err := l.daemon.Start(l.ctx, env...); errors.Is(err, chaos.ErrEnded) {
		l.restart()
	} else if err != nil {
		l.t.Fatal(err)
	}
	l.operate(checker.Create, ready)
	for _, step := range []func(){
		l.exec,
		func() { l.operate(checker.Stop, stopped) },
		func() { l.operate(checker.Resume, ready) },
	} {
		if l.crashed {
			l.rest()
			break
		}
		step()
	}
	l.operate(checker.Delete, deleted)
	l.rest()
	l.end()
	return l.crashed
}

// ask sends a request, again when the daemon died under it. accepted tells that the daemon has answered so.
func (l *life) ask(what string, send func() error) (accepted bool) {
	l.t.Helper()
	for {
		err := send()
		switch {
		case err == nil:
			return true
		case !errors.Is(err, raw.ErrUnavailable):
			if !l.crashed {
				l.t.Fatalf("%s: %v", what, err)
			}
			return false // an earlier try was accepted, as the log tells
		}
		l.restart()
	}
}

// restart starts the daemon again, which must have died.
func (l *life) restart() {
	l.t.Helper()
	select {
	case <-l.daemon.Ended():
	case <-l.ctx.Done():
		l.t.Fatal("a request found no daemon, and the daemon lives")
	}
	l.crashed = true
	l.daemon.Kill()
	l.log()
	if err := l.daemon.Start(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	// A new client does not wait before it connects, as the old one would.
	fresh, err := raw.Dial(raw.WithSocket(l.daemon.Socket()))
	if err := errors.Join(err, l.client.Close()); err != nil {
		l.t.Fatal(err)
	}
	l.client = fresh
	l.checker.Client = l.client
}

func (l *life) operate(op checker.Operation, want agboxv1.SandboxState) {
	l.t.Helper()
	accepted := l.ask(string(op), func() (err error) {
		l.record.Ask(l.id, op)
		switch op {
		case checker.Create:
			_, err = l.client.CreateSandbox(l.ctx, &agboxv1.CreateSandboxRequest{SandboxId: l.id, CreateSpec: l.spec})
		case checker.Stop:
			_, err = l.client.StopSandbox(l.ctx, &agboxv1.StopSandboxRequest{SandboxId: l.id})
		case checker.Resume:
			_, err = l.client.ResumeSandbox(l.ctx, &agboxv1.ResumeSandboxRequest{SandboxId: l.id})
		case checker.Delete:
			_, err = l.client.DeleteSandbox(l.ctx, &agboxv1.DeleteSandboxRequest{SandboxId: l.id})
		}
		return err
	})
	if accepted {
		l.record.Accepted(l.id, op)
	}
	l.settle(op, want)
}

func (l *life) exec() {
	l.t.Helper()
	id := "run-" + l.id
	l.record.AskExec(l.id, id, checker.Want{ExitCode: 7, Stdout: 2000, Stderr: 3})
	if l.ask("exec", func() error {
		_, err := l.client.CreateExec(l.ctx, &agboxv1.CreateExecRequest{SandboxId: l.id, ExecId: id,
			Command: []string{"sh", "-c", "seq 1 1000; sleep 0.05; seq 1001 2000; seq 1 3 >&2; exit 7"}})
		return err
	}) {
		l.record.AcceptedExec(l.id, id)
	}
	l.settle("exec", ready)
}

// settle follows the events until the operation has ended, over the daemon's death, and fails the test where that
// is not as the contract has it.
func (l *life) settle(op checker.Operation, want agboxv1.SandboxState) {
	l.t.Helper()
	for err := l.follow(op); err != nil; err = l.follow(op) {
		if l.ctx.Err() != nil {
			l.t.Fatalf("%s came to no end after %v", op, l.last)
		}
		if !errors.Is(err, raw.ErrUnavailable) && !errors.Is(err, io.EOF) {
			l.t.Fatalf("events of %s: %v", op, err)
		}
		l.restart()
	}
	interrupted := l.crashed && l.last.SandboxState == failed && l.last.GetSandboxPhase().GetErrorCode() == "INTERRUPTED"
	if l.last.SandboxState != want && !interrupted {
		l.t.Errorf("%s ended in %s: %v", op, l.last.SandboxState, l.last)
	}
}

// follow reads from the last event that was told to the one that ends the operation.
func (l *life) follow(op checker.Operation) error {
	from := l.last.GetSequence()
	stream, err := l.client.SubscribeSandboxEvents(l.ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: l.id, FromSequence: from})
	if err != nil {
		return err
	}
	defer stream.Close()
	told := l.record.Stream(l.id, from)
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		told.Add(event)
		if l.last = event; ended(op, event) {
			return nil
		}
	}
}

// ended reports whether the event is the last one of the operation.
func ended(op checker.Operation, event *agboxv1.SandboxEvent) bool {
	switch event.EventType {
	case agboxv1.EventType_SANDBOX_FAILED, agboxv1.EventType_SANDBOX_DELETED:
		return true
	case agboxv1.EventType_SANDBOX_READY:
		return op == checker.Create || op == checker.Resume
	case agboxv1.EventType_SANDBOX_STOPPED:
		return op == checker.Stop
	case agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
		return op == "exec"
	}
	return false
}

// rest has everything compared, also when the daemon dies only now.
func (l *life) rest() {
	l.t.Helper()
	err := l.checker.Rest(l.ctx)
	for errors.Is(err, raw.ErrUnavailable) {
		l.restart()
		err = l.checker.Rest(l.ctx)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) log() {
	l.t.Helper()
	if err := l.checker.Log(l.daemon.Database()); err != nil {
		l.t.Fatal(err)
	}
}

// end ends the daemon as a signal does and tells what is wrong.
func (l *life) end() {
	l.t.Helper()
	err := l.daemon.Stop(l.ctx)
	if err != nil && !l.crashed && strings.Contains(err.Error(), "signal: killed") { // while it removed what is nobody's
		l.crashed = true
		l.daemon.Kill()
		err = errors.Join(l.daemon.Start(l.ctx), l.daemon.Stop(l.ctx))
	}
	if err != nil {
		l.t.Error(err)
	}
	if left, err := l.checker.Unowned(l.ctx); err != nil {
		l.t.Error(err)
	} else if len(left) > 0 { // the engine may have made them for the daemon that died, after the next one had looked for the last time
		if err := errors.Join(l.daemon.Start(l.ctx), l.daemon.Stop(l.ctx)); err != nil {
			l.t.Error(err)
		}
		if still, err := l.checker.Unowned(l.ctx); err != nil || len(still) > 0 {
			l.t.Errorf("networks that no sandbox has: %v, after one more start %v: %v", left, still, err)
		}
	}
	l.log()
	for _, violation := range l.checker.Report().Violations() {
		l.t.Error(violation)
	}
}

// point is a call of every life, whatever its ids.
type point struct{ method, path string }

var anyID = regexp.MustCompile(`(?:[0-9a-f]{64}|agbox-net-ab[a-z2-7]{13})`)

// killAt has the daemon killed at the nth call of that point.
func (l *life) killAt(where point, nth int, phase proxy.Phase) {
	path := strings.NewReplacer("SANDBOX", l.id, "ANY", anyID.String()).Replace(regexp.QuoteMeta(where.path))
	rule := proxy.Rule{Method: where.method, Path: regexp.MustCompile("^" + path + "$"), Phase: phase, Nth: nth, Fault: proxy.Run(l.daemon.Kill)}
	if err := l.proxy.Use(rule); err != nil {
		l.t.Fatal(err)
	}
}

// TestCrash kills the daemon at four points of a sandbox's life: with a create just accepted, with its container just
// started, with a command about to end, and with its container just removed. All other points: TestLongCrash….
func TestCrash(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	for name, at := range map[string]struct {
		commit string
		call   point
	}{
		"create accepted":   {commit: "4"},
		"container started": {call: point{"POST", "/containers/ANY/start"}},
		"exec finishes":     {commit: "9"},
		"container removed": {call: point{"DELETE", "/containers/ANY"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t, engine)
			var env []string
			if at.commit != "" {
				env = append(env, "AGBOX_CRASH_AT="+at.commit)
			} else {
				l.killAt(at.call, 1, proxy.After)
			}
			if !l.live(env...) {
				t.Error("the daemon did not die")
			}
		})
	}
}
