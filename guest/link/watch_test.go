package link_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// briefly is a patience that a test can wait for.
const briefly = 40 * time.Millisecond

// watched returns a link with little patience, and what it reports as lost.
func watched(t *testing.T) (*link.Link, string, <-chan string) {
	t.Helper()
	path, lost := filepath.Join(t.TempDir(), "s"), make(chan string, 100)
	l, err := link.Listen(path, link.Owner{
		Verify: trust, Patience: briefly, Lost: func(why string) { lost <- why },
	}, slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l, path, lost
}

// answerPings answers whatever is asked of p until the connection ends.
func (p *peer) answerPings() {
	for m, _ := p.hear(); m != nil; m, _ = p.hear() {
		if s, ok := m.(*protocol.Signal); ok {
			p.say(&protocol.Signalled{Token: s.Token, Outcome: protocol.SignalExecUnknown})
		}
	}
}

func reported(t *testing.T, lost <-chan string) {
	t.Helper()
	select {
	case why := <-lost:
		t.Log(why)
	case <-limit(t).Done():
		t.Fatal("nothing was reported")
	}
}

// TestLostWhileExecRuns: a connection that ends and does not come back, and one that nobody answers on, are reported once.
func TestLostWhileExecRuns(t *testing.T) {
	l, path, lost := watched(t)
	p := greet(t, path, protocol.Hello{Booted: true})
	done := exec(l, limit(t), spec(t, "e"))
	hears[*protocol.Exec](p)
	p.conn.Close()
	reported(t, lost)

	silent := greet(t, path, protocol.Hello{Booted: true, Execs: []protocol.KnownExec{{ID: "e", PID: 9}}})
	for m, _ := silent.hear(); m != nil; m, _ = silent.hear() { // until it is given up
		t.Logf("%T", m)
	}
	p = greet(t, path, protocol.Hello{Booted: true, Execs: []protocol.KnownExec{{ID: "e", PID: 9}}})
	go p.answerPings()
	check(t, l.Ping(limit(t)))
	p.say(&protocol.Result{ID: "e", ExitCode: 3})
	if a := <-done; a.error != nil || a.ExitCode != 3 {
		t.Fatalf("%+v", a)
	}
	if len(lost) != 0 {
		t.Errorf("it was reported again: %s", <-lost)
	}
}

// TestLostWhileIdle: an init that was connected is missed, and one that is connected has its peace.
func TestLostWhileIdle(t *testing.T) {
	l, path, lost := watched(t)
	p := greet(t, path, protocol.Hello{Booted: true})
	check(t, l.Connected(limit(t)))
	p.conn.SetDeadline(time.Now().Add(5 * briefly))
	if n, err := p.conn.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("an idle init hears %d bytes, %v", n, err)
	}
	p.conn.Close()
	reported(t, lost)
}

// TestFrozenIsNotLost: nobody expects an answer of what is paused.
func TestFrozenIsNotLost(t *testing.T) {
	l, path, lost := watched(t)
	l.AssumeFrozen()
	p := greet(t, path, protocol.Hello{Booted: true, Frozen: true})
	exec(l, limit(t), spec(t, "e"))
	hears[*protocol.Exec](p)
	select {
	case why := <-lost:
		t.Error(why)
	case <-time.After(5 * briefly):
	}
	l.Thaw()
	reported(t, lost)
}

// TestReborn: the init of a container that somebody else has started again is reported at once, and gets nothing that the
// first was meant to have but the order to stop.
func TestReborn(t *testing.T) {
	for name, begin := range map[string]func(l *link.Link, path string){
		"seen before": func(l *link.Link, path string) {
			greet(t, path, protocol.Hello{Booted: true})
			check(t, l.Connected(limit(t)))
		},
		"by another daemon": func(l *link.Link, _ string) { l.ExpectBooted() },
	} {
		t.Run(name, func(t *testing.T) {
			path, lost := filepath.Join(t.TempDir(), "s"), make(chan string, 1)
			l, err := link.Listen(path, link.Owner{Verify: trust, Patience: time.Hour, Lost: func(why string) { lost <- why }},
				slog.New(slog.DiscardHandler))
			check(t, err)
			defer l.Close()
			begin(l, path)
			done := exec(l, limit(t), spec(t, "e"))
			p := greet(t, path, protocol.Hello{})
			reported(t, lost)
			if !l.Reborn() {
				t.Error("it is not known as another")
			}
			check(t, l.Stop(limit(t), 0))
			hears[*protocol.Stop](p)
			check(t, l.Close())
			if a := <-done; !errors.Is(a.error, link.ErrClosed) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestFloodIsSlowed: strangers who connect without end are looked at so often and no more.
func TestFloodIsSlowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var seen atomic.Int64
	enough := make(chan struct{})
	begun := time.Now()
	listen(t, path, func(context.Context, int) error {
		if seen.Add(1) == 300 {
			close(enough)
		}
		return errors.New("a stranger")
	})
	stranger := osexec.Command(os.Args[0])
	stranger.Env = []string{floodVariable + "=" + filepath.Dir(path), endlessVariable + "=1"}
	stranger.Stderr = os.Stderr
	check(t, stranger.Start())
	defer stranger.Wait()
	defer stranger.Process.Kill()
	<-enough
	if took := time.Since(begun); took < (300-64-16)*time.Second/500 {
		t.Errorf("300 strangers were looked at within %s", took)
	}
}
