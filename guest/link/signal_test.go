package link_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// signal calls Signal in the background.
func signal(l *link.Link, ctx context.Context, id string, number int) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Signal(ctx, id, number) }()
	return done
}

func TestSignal(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	for _, tt := range []struct {
		outcome protocol.SignalOutcome
		want    error
	}{
		{protocol.SignalSent, nil},
		{protocol.SignalExecUnknown, link.ErrExecUnknown},
		{protocol.SignalExecEnded, link.ErrExecEnded},
		{protocol.SignalRefused, syscall.EPERM},
	} {
		done := signal(l, limit(t), "e", 12)
		m := hears[*protocol.Signal](p)
		if m.ID != "e" || m.Signal != 12 {
			t.Fatalf("%+v", m)
		}
		p.say(&protocol.Signalled{Token: m.Token, Outcome: tt.outcome, Errno: int(syscall.EPERM)})
		if err := <-done; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
}

// Each caller gets its own answer, and what nobody waits for any more is dropped.
func TestSignalAnswersOutOfOrder(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	ctx, leave := context.WithCancel(context.Background())
	gone := signal(l, ctx, "gone", 1)
	late := hears[*protocol.Signal](p)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first, second := signal(l, limit(t), "first", 1), signal(l, limit(t), "second", 1)
	tokens := map[string]uint64{}
	for range 2 {
		m := hears[*protocol.Signal](p)
		tokens[m.ID] = m.Token
	}
	p.say(&protocol.Signalled{Token: late.Token})
	p.say(&protocol.Signalled{Token: tokens["second"]})
	for range 3 { // too often
		p.say(&protocol.Signalled{Token: tokens["second"], Outcome: protocol.SignalExecEnded})
	}
	p.say(&protocol.Signalled{Token: tokens["first"], Outcome: protocol.SignalExecEnded})
	if err := <-first; !errors.Is(err, link.ErrExecEnded) {
		t.Fatal(err)
	}
	check(t, <-second)
}

// A signal that was on its way when the connection broke is neither repeated nor called sent.
func TestSignalAcrossReconnect(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	done := signal(l, limit(t), "e", 1)
	hears[*protocol.Signal](p)
	p.conn.Close()
	if err := <-done; !errors.Is(err, link.ErrSignalUnknown) {
		t.Fatal(err)
	}
	p = greet(t, path, protocol.Hello{})
	check(t, l.Stop(limit(t), 0))
	hears[*protocol.Stop](p) // and no Signal before it
}

func TestSignalWaitsForConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path, trust)
	done := signal(l, limit(t), "e", 1)
	p := greet(t, path, protocol.Hello{})
	p.say(&protocol.Signalled{Token: hears[*protocol.Signal](p).Token})
	check(t, <-done)
}
