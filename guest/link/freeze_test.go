package link_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// freeze calls Freeze in the background.
func freeze(t *testing.T, l *link.Link) <-chan error {
	done, ctx := make(chan error, 1), limit(t)
	go func() { done <- l.Freeze(ctx) }()
	return done
}

// said fails unless init has heard no more than the test has looked at.
func said(l *link.Link, p *peer) {
	p.Helper()
	check(p.T, l.Stop(limit(p.T), 0))
	hears[*protocol.Stop](p)
}

// waiting fails if the call has returned; it must not before what comes next.
func waiting(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatal("not confirmed, and returned", err)
	default:
	}
}

func TestFreeze(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	l.Thaw() // says nothing
	done := freeze(t, l)
	hears[*protocol.Freeze](p)
	waiting(t, done)
	p.say(&protocol.Frozen{})
	check(t, <-done)
	check(t, l.Freeze(limit(t))) // says nothing, and is confirmed
	l.Thaw()
	l.Thaw()
	hears[*protocol.Thaw](p)
	said(l, p)
}

// The answer to an earlier Freeze does not confirm a later one.
func TestFreezeAgain(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	first := freeze(t, l)
	hears[*protocol.Freeze](p)
	l.Thaw()
	if err := <-first; !errors.Is(err, link.ErrThawed) {
		t.Fatal(err)
	}
	hears[*protocol.Thaw](p)
	second := freeze(t, l)
	hears[*protocol.Freeze](p)
	p.say(&protocol.Frozen{})
	signalled := signal(l, limit(t), "e", 0)
	p.say(&protocol.Signalled{Token: hears[*protocol.Signal](p).Token})
	check(t, <-signalled) // so the first Frozen was looked at
	waiting(t, second)
	p.say(&protocol.Frozen{})
	check(t, <-second)
}

// The wish is said again wherever init says otherwise, also one whose call has given up.
func TestFreezeAcrossReconnect(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	ctx, giveUp := context.WithCancel(context.Background())
	giveUp()
	if err := l.Freeze(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	hears[*protocol.Freeze](p)
	done := freeze(t, l)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{}) // has not heard it
	hears[*protocol.Freeze](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Frozen: true}) // has
	check(t, <-done)
	said(l, p)
	l.Thaw()
	hears[*protocol.Thaw](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Frozen: true}) // has not heard that
	hears[*protocol.Thaw](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{})
	check(t, l.Connected(limit(t)))
	said(l, p)
}
