package network

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// ready are the networks of no sandbox: those that the next one can have, and those that somebody has to look at first. One
// goroutine looks at them and makes more, a network at a time and a turn for each.
type ready struct {
	size   int
	wake   chan struct{}
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu sync.Mutex
	// spare are as they were made, the one that rested longest first; due were given back, or found.
	spare, due []string
	// busy are between two of these states. cleaning: the goroutine has one of them; settled is closed when it has not any more.
	busy     map[string]bool
	cleaning bool
	settled  chan struct{}
	// active: some sandbox has needed a network, so that others may.
	active bool
}

func newReady(size int) *ready {
	return &ready{size: size, wake: make(chan struct{}, 1), busy: map[string]bool{}, settled: make(chan struct{})}
}

// begin has networks be made ahead from now on.
func (r *ready) begin() {
	r.mu.Lock()
	r.active = true
	r.mu.Unlock()
	r.rouse()
}

func (r *ready) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add has a network looked at.
func (r *ready) add(name string) {
	r.mu.Lock()
	if !r.busy[name] && !slices.Contains(r.due, name) {
		r.due = append(r.due, name)
	}
	r.mu.Unlock()
	r.rouse()
}

// knows reports whether the network is one of these.
func (r *ready) knows(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy[name] || slices.Contains(r.spare, name) || slices.Contains(r.due, name)
}

// take makes the spare network busy that rested longest, "" for none.
func (r *ready) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first(&r.spare)
}

func (r *ready) first(of *[]string) string {
	if len(*of) == 0 {
		return ""
	}
	name := (*of)[0]
	*of = (*of)[1:]
	r.busy[name] = true
	return name
}

// hold makes a network busy that is about to be made.
func (r *ready) hold(name string) {
	r.mu.Lock()
	r.busy[name] = true
	r.mu.Unlock()
}

// release ends what take and hold began. Somebody else knows the network now, or nobody has to.
func (r *ready) release(name string) {
	r.mu.Lock()
	delete(r.busy, name)
	r.mu.Unlock()
}

// count returns how many are ready.
func (r *ready) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spare)
}

// next returns how much the next thing to do matters, and whether there is any.
func (r *ready) next() (class runtime.Class, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lacking := len(r.spare) < r.size
	switch {
	case lacking && (r.active || len(r.due) > 0):
		return runtime.Refill, true
	case len(r.due) > 0:
		return runtime.Cleanup, true
	}
	return 0, false
}

// start begins the work; see stop.
func (ns *Networks) startReady() {
	ctx, cancel := context.WithCancel(ns.engine.Closed())
	ns.ready.cancel = cancel
	ns.ready.work.Go(func() {
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 30*time.Second
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ns.ready.wake:
			case <-again.C:
			case <-ctx.Done():
				return
			}
			if err := ns.tend(ctx); err != nil && ctx.Err() == nil {
				delay := wait.NextBackOff()
				ns.log.Warn("networks that are ready could not be seen to, trying again", slog.Duration("after", delay), slog.Any("error", err))
				again.Reset(delay)
			} else {
				wait.Reset()
			}
		}
	})
}

// tend does what there is to do, in turns.
func (ns *Networks) tend(ctx context.Context) error {
	for {
		class, any := ns.ready.next()
		if !any {
			return nil
		}
		give, err := ns.queue.Take(runtime.WithTurn(ctx, runtime.Turn{Class: class, Owner: "networks"}), nil)
		if err != nil {
			return err
		}
		err = ns.tendOne(ctx)
		give()
		if err != nil {
			return err
		}
	}
}

// tendOne looks at a network that is due, or makes one where some lack.
func (ns *Networks) tendOne(ctx context.Context) error {
	r := ns.ready
	r.mu.Lock()
	name := r.first(&r.due)
	full, lacking := len(r.spare) >= r.size, r.active && len(r.spare) < r.size
	r.cleaning = true
	r.mu.Unlock()
	var err error
	ready := false
	switch {
	case name != "" && full:
		err = ns.discard(ctx, name)
	case name != "":
		ready, err = ns.restore(ctx, name)
	case lacking:
		name = ns.guard.newName()
		r.hold(name)
		bridge, _ := ns.guard.neutral(name)
		_, err = ns.make(ctx, name, request{bridge: bridge, labels: ns.engine.PoolLabels()})
		ready = err == nil
	}
	exhausted := errors.Is(err, ErrPoolExhausted)
	if exhausted { // until somebody needs a network again
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, name)
	r.active = r.active && !exhausted
	switch {
	case ready:
		r.spare = append(r.spare, name)
	case err != nil && name != "":
		r.due = append(r.due, name) // also one that was being made: the engine may have it
	}
	r.cleaning = false
	close(r.settled)
	r.settled = make(chan struct{})
	return err
}

// relinquish lets go of the subnet of a network that is no sandbox's, and reports whether there was any, or may be one now.
func (ns *Networks) relinquish(ctx context.Context) bool {
	r := ns.ready
	r.mu.Lock()
	name := r.first(&r.due)
	if name == "" {
		name = r.first(&r.spare)
	}
	cleaning, settled := r.cleaning, r.settled
	r.mu.Unlock()
	if name == "" {
		if !cleaning {
			return false
		}
		select {
		case <-settled:
			return true
		case <-ctx.Done():
			return false
		}
	}
	err := ns.discard(ctx, name)
	r.release(name)
	if err != nil {
		ns.log.Warn("a network could not be removed for its subnet", "network", name, "error", err)
		r.add(name)
	}
	return err == nil
}

// drainTime bounds the removal of networks that are nobody's when the daemon ends. What is left is found at the next start.
const drainTime = 30 * time.Second

// Drain removes the networks that are no sandbox's, and lets none be made any more. Call it before engine.Client.Abort.
func (ns *Networks) Drain() {
	ns.ready.cancel()
	ended := make(chan struct{})
	go func() {
		ns.ready.work.Wait()
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ns.engine.Closed(), drainTime)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		return // Abort cuts it off
	}
	r := ns.ready
	r.mu.Lock()
	left := slices.Concat(r.due, r.spare)
	r.due, r.spare = nil, nil
	r.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(4)
	for _, name := range left {
		group.Go(func() error {
			if err := ns.discard(ctx, name); err != nil && !errors.Is(err, context.Canceled) {
				ns.log.Warn("a network that is no sandbox's stays until the next start", "network", name, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // of errors it was told
}

// newName is no other network's, and says nothing of a sandbox: the name of the bridge is in it.
func (g *guard) newName() string { return engine.NetworkPrefix + g.rules.Bridge() }

// neutral reports whether a network has such a name, and the bridge that is in it.
func (g *guard) neutral(name string) (bridge string, is bool) {
	bridge, ours := strings.CutPrefix(name, engine.NetworkPrefix)
	return bridge, ours && g.rules.Holds(bridge)
}
