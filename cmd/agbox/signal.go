package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupt is the cause of a context that a signal ended.
type interrupt struct{ signal os.Signal }

func (i *interrupt) Error() string { return fmt.Sprintf("ended by %v", i.signal) }

// code is what a shell reports for the signal: 130 for Ctrl-C, 143 for TERM.
func (i *interrupt) code() int {
	if s, ok := i.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 130
}

// listen returns what signals ask the run to end; stop must follow.
func listen() (signals <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	return ch, func() { signal.Stop(ch) }
}

// interruptible returns a context that the first signal ends, an *interrupt as its cause.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, ignore := listen()
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case s := <-signals:
			cancel(&interrupt{s})
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		ignore()
		cancel(nil)
		group.Wait()
	}
}
