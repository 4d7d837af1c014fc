package initlink_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// freeze calls Freeze in the background.
func freeze(t *testing.T, l *initlink.Link) <-chan error {
	done, ctx := make(chan error, 1), limit(t)
	go func() { done <- l.Freeze(ctx) }()
	return done
}

// said fails unless init has heard no more than the test has looked at.
func said(l *initlink.Link, p *peer) {
	p.Helper()
	check(p.T, l.Stop(limit(p.T), 0))
	hears[*initproto.Stop](p)
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
	l, _, p := open(t, initproto.Hello{})
	l.Thaw() // says nothing
	done := freeze(t, l)
	hears[*initproto.Freeze](p)
	waiting(t, done)
	p.say(&initproto.Frozen{})
	check(t, <-done)
	check(t, l.Freeze(limit(t))) // says nothing, and is confirmed
	l.Thaw()
	l.Thaw()
	hears[*initproto.Thaw](p)
	said(l, p)
}

// The answer to an earlier Freeze does not confirm a later one.
func TestFreezeAgain(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	first := freeze(t, l)
	hears[*initproto.Freeze](p)
	l.Thaw()
	if err := <-first; !errors.Is(err, initlink.ErrThawed) {
		t.Fatal(err)
	}
	hears[*initproto.Thaw](p)
	second := freeze(t, l)
	hears[*initproto.Freeze](p)
	p.say(&initproto.Frozen{})
	signalled := signal(l, limit(t), "e", 0)
	p.say(&initproto.Signalled{Token: hears[*initproto.Signal](p).Token})
	check(t, <-signalled) // so the first Frozen was looked at
	waiting(t, second)
	p.say(&initproto.Frozen{})
	check(t, <-second)
}

// The wish is said again wherever init says otherwise, also one whose call has given up.
func TestFreezeAcrossReconnect(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	ctx, giveUp := context.WithCancel(context.Background())
	giveUp()
	if err := l.Freeze(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	hears[*initproto.Freeze](p)
	done := freeze(t, l)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{}) // has not heard it
	hears[*initproto.Freeze](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Frozen: true}) // has
	check(t, <-done)
	said(l, p)
	l.Thaw()
	hears[*initproto.Thaw](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Frozen: true}) // has not heard that
	hears[*initproto.Thaw](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{})
	check(t, l.Connected(limit(t)))
	said(l, p)
}
