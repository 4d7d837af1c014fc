package initlink_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// signal calls Signal in the background.
func signal(l *initlink.Link, ctx context.Context, id string, number int) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Signal(ctx, id, number) }()
	return done
}

func TestSignal(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	for _, tt := range []struct {
		outcome initproto.SignalOutcome
		want    error
	}{
		{initproto.SignalSent, nil},
		{initproto.SignalExecUnknown, initlink.ErrExecUnknown},
		{initproto.SignalExecEnded, initlink.ErrExecEnded},
		{initproto.SignalRefused, syscall.EPERM},
	} {
		done := signal(l, limit(t), "e", 12)
		m := hears[*initproto.Signal](p)
		if m.ID != "e" || m.Signal != 12 {
			t.Fatalf("%+v", m)
		}
		p.say(&initproto.Signalled{Token: m.Token, Outcome: tt.outcome, Errno: int(syscall.EPERM)})
		if err := <-done; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
}

// Each caller gets its own answer, and what nobody waits for any more is dropped.
func TestSignalAnswersOutOfOrder(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	ctx, leave := context.WithCancel(context.Background())
	gone := signal(l, ctx, "gone", 1)
	late := hears[*initproto.Signal](p)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first, second := signal(l, limit(t), "first", 1), signal(l, limit(t), "second", 1)
	tokens := map[string]uint64{}
	for range 2 {
		m := hears[*initproto.Signal](p)
		tokens[m.ID] = m.Token
	}
	p.say(&initproto.Signalled{Token: late.Token})
	p.say(&initproto.Signalled{Token: tokens["second"]})
	for range 3 { // too often
		p.say(&initproto.Signalled{Token: tokens["second"], Outcome: initproto.SignalExecEnded})
	}
	p.say(&initproto.Signalled{Token: tokens["first"], Outcome: initproto.SignalExecEnded})
	if err := <-first; !errors.Is(err, initlink.ErrExecEnded) {
		t.Fatal(err)
	}
	check(t, <-second)
}

// A signal that was on its way when the connection broke is neither repeated nor called sent.
func TestSignalAcrossReconnect(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	done := signal(l, limit(t), "e", 1)
	hears[*initproto.Signal](p)
	p.conn.Close()
	if err := <-done; !errors.Is(err, initlink.ErrSignalUnknown) {
		t.Fatal(err)
	}
	p = greet(t, path, initproto.Hello{})
	check(t, l.Stop(limit(t), 0))
	hears[*initproto.Stop](p) // and no Signal before it
}

func TestSignalWaitsForConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path, trust)
	done := signal(l, limit(t), "e", 1)
	p := greet(t, path, initproto.Hello{})
	p.say(&initproto.Signalled{Token: hears[*initproto.Signal](p).Token})
	check(t, <-done)
}
