//go:build long

package chaos_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
)

// TestLongEngineRestarts: with live-restore an engine that comes and goes is a pause for what has to do with it, and
// nothing at all for commands.
func TestLongEngineRestarts(t *testing.T) {
	t.Parallel()
	s := newSite(t, true, false)
	s.restart(s.engine.Stop)
	s.restart(s.engine.Kill)
	s.startsFirst()
	s.end()
}

// restart ends the engine while commands run, asks for everything else meanwhile, and starts it again.
func (s *site) restart(away func() error) {
	s.Helper()
	made := s.create("works", "dies", "stops", "resumes", "goes")
	works, dies, stops, resumes, goes := made[0], made[1], made[2], made[3], made[4]
	resumes.do(checker.Stop)
	during, after, lost := works.start(), works.start(), dies.start()
	primary, err := s.docker.ContainerInspect(s.ctx, "agbox-primary-"+dies.id)
	s.must(err)

	s.must(away())
	during.pass()
	during.finished()
	works.run()
	s.record.Killed(dies.id)
	s.must(syscall.Kill(primary.State.Pid, syscall.SIGKILL))
	stopping, resuming, going := stops.ask(checker.Stop), resumes.ask(checker.Resume), goes.ask(checker.Delete)
	s.unavailable("late-" + works.id)
	if state := s.state(works); state != ready {
		s.Errorf("without an engine %s is %s", works.id, state)
	}
	works.replay()

	s.must(s.engine.Start(s.ctx))
	dies.died("signal 9, killed")
	if end := lost.ended(); end.EventType != agboxv1.EventType_EXEC_FAILED || end.GetExec().ErrorCode != "EXEC_RESULT_LOST" {
		s.Errorf("a command that was killed with its sandbox ended with %v", end)
	}
	stops.await(stopping, agboxv1.EventType_SANDBOX_STOPPED)
	resumes.await(resuming, agboxv1.EventType_SANDBOX_READY)
	goes.await(going, agboxv1.EventType_SANDBOX_DELETED)
	late := s.accept("late-" + works.id) // the refusal has not used the id up
	late.await(0, agboxv1.EventType_SANDBOX_READY)
	after.pass()
	after.finished()
	if state := s.state(works); state != ready {
		s.Errorf("after the engine's return %s is %s", works.id, state)
	}
	resumes.run()
	late.run()
	works.run()
	works.do(checker.Stop)
	works.do(checker.Resume)
	works.run()
	s.remove(works, dies, stops, resumes, late)
}

// startsFirst: without an engine agboxd says so and ends, and what went on meanwhile is known at its next start.
func (s *site) startsFirst() {
	s.Helper()
	b := s.create("first")[0]
	c := b.start()
	s.must(s.daemon.Stop(s.ctx))
	s.must(s.engine.Stop())
	c.pass()
	written, err := os.Stat(s.daemon.Log())
	s.must(err)
	if err := s.daemon.Start(s.ctx); !errors.Is(err, chaos.ErrEnded) || !strings.Contains(err.Error(), "exit status 1") {
		s.Errorf("without an engine agboxd starts with %v", err)
	}
	log, err := os.ReadFile(s.daemon.Log())
	s.must(err)
	said := string(log[written.Size():])
	for _, want := range []string{"agboxd: ", s.engine.Host(), "start it"} {
		if !strings.Contains(said, want) {
			s.Errorf("without an engine agboxd says %q, want %q in it", said, want)
		}
	}
	s.must(s.engine.Start(s.ctx))
	s.must(s.daemon.Start(s.ctx))
	b.subscribe()
	c.finished()
	b.run()
	b.do(checker.Delete)
}

// TestLongEngineStops: without live-restore the containers end with the engine, or when it starts after a kill, and the
// daemon says what it knows.
func TestLongEngineStops(t *testing.T) {
	t.Parallel()
	s := newSite(t, false, true)
	s.stop(s.engine.Stop)
	s.stop(s.engine.Kill)
	s.end()
}

func (s *site) stop(away func() error) {
	s.Helper()
	made := s.create("runs", "rests")
	runs, rests := made[0], made[1]
	rests.do(checker.Stop)
	known, running := runs.run(), runs.start()
	comes, on := s.held("comes-" + runs.id)

	s.record.Killed(runs.id)
	s.must(away())
	on()
	s.unavailable("late-" + runs.id)
	if state := s.state(rests); state != stopped {
		s.Errorf("without an engine %s is %s", rests.id, state)
	}
	runs.replay()

	s.must(s.engine.Start(s.ctx))
	runs.died("the primary container ended with exit code ")
	switch end := running.ended(); {
	case end.EventType == agboxv1.EventType_EXEC_CANCELLED && end.GetExec().Signal == int32(syscall.SIGTERM): // as agbox-init saw it
	case end.EventType == agboxv1.EventType_EXEC_FAILED && end.GetExec().ErrorCode == "EXEC_RESULT_LOST":
	default:
		s.Errorf("a command that was stopped with its sandbox ended with %v", end)
	}
	exec, err := s.client.GetExec(s.ctx, &agboxv1.GetExecRequest{ExecId: known.id})
	s.must(err)
	if exec.Exec.State != agboxv1.ExecState_EXEC_STATE_FINISHED || exec.Exec.ExitCode != 7 {
		s.Errorf("a command that had ended before is %v", exec.Exec)
	}
	comes.await(0, agboxv1.EventType_SANDBOX_READY)
	comes.run()
	if state := s.state(rests); state != stopped {
		s.Errorf("after the engine's return %s is %s", rests.id, state)
	}
	rests.do(checker.Resume)
	rests.run()
	s.remove(runs, rests, comes)
}

// held returns a sandbox whose creation was accepted and has not reached the engine. After on it goes on.
func (s *site) held(id string) (b *box, on func()) {
	s.Helper()
	there, released := make(chan struct{}, 1), make(chan struct{})
	s.must(s.proxy.Use(proxy.Rule{Method: "POST", Path: regexp.MustCompile("^/containers/create$"), Phase: proxy.Before,
		Fault: proxy.Run(func() {
			there <- struct{}{}
			select {
			case <-released:
			case <-s.ctx.Done():
			}
		})}))
	b = s.accept(id)
	select {
	case <-there:
	case <-s.ctx.Done():
		s.Fatalf("the creation of %s does not come to the engine", id)
	}
	return b, func() {
		s.Helper()
		s.must(s.proxy.Use())
		close(released)
	}
}
