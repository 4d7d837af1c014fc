// Package relay is the way into a sandbox where no socket of this host is seen there: an engine on another machine, Docker Desktop,
// gVisor. It carries what a Link and agbox-init say to each other, and the output and input of commands, by the engine's exec API. This is
// the host's end; the other one is package forwarder. Package protocol (relay.go) tells what they say.
//
// Whatever is inside may be forged by the sandbox's root: nothing from there chooses a file.
package relay

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// Sandbox is what a relay needs of the sandbox that it leads into. Its functions may be called by several goroutines at once.
type Sandbox struct {
	Link *link.Link
	// Running is closed once the container was started.
	Running <-chan struct{}
	// Attach runs "agbox-init relay" in the container, as root, and returns what the engine makes of its input and output.
	Attach func(context.Context) (types.HijackedResponse, error)
	// Outputs opens the logs of the image's entrypoint and the main command, Record the file for the result of the latter.
	Outputs func() (stdout, stderr *os.File, err error)
	Record  func() (*os.File, error)
	// Room is how many bytes may be added to a file of output without taking the last of its disk.
	Room func(*os.File) uint64
	// Log names the sandbox.
	Log *slog.Logger
}

// Relay has one session after the other with the sandbox, until it is closed. All methods may be called concurrently.
type Relay struct {
	Sandbox
	cancel   context.CancelFunc
	ended    chan struct{}
	wake     chan struct{} // one token: it is worth trying again
	reserved int           // bytes written since the disk is short

	mu    sync.Mutex
	execs map[string]*exec
}

// How soon a session is begun again, when the last one ended or there could be none, as in a paused container.
const (
	firstAgain = 50 * time.Millisecond
	lastAgain  = 5 * time.Second
)

// Start begins as soon as the sandbox runs.
func Start(sandbox Sandbox) *Relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{Sandbox: sandbox, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1), execs: map[string]*exec{}}
	go r.run(ctx)
	return r
}

// Close returns when nothing of the relay is left, on either end.
func (r *Relay) Close() {
	r.cancel()
	<-r.ended
}

// Hurry is for when a session that could not be begun may be possible again.
func (r *Relay) Hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Relay) run(ctx context.Context) {
	defer close(r.ended)
	defer r.drop()
	select {
	case <-r.Running:
	case <-ctx.Done():
		return
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstAgain, lastAgain
	for {
		err := r.session(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		r.interrupted()
		delay := wait.NextBackOff()
		r.Log.Debug("the relay into a sandbox ended", "again_in", delay, "error", err)
		select {
		case <-time.After(delay):
		case <-r.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Relay) find(id string) *exec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.execs[id]
}

func (r *Relay) list() (all []*exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.execs {
		all = append(all, e)
	}
	return all
}

// forget lets go of an exec that is over. One with a pipe, which may have more to carry than the exec has life, waits for the pipe's end.
func (r *Relay) forget(id string, piped bool) {
	r.mu.Lock()
	e := r.execs[id]
	if e == nil || e.pipe != nil && !piped {
		r.mu.Unlock()
		return
	}
	delete(r.execs, id)
	r.mu.Unlock()
	if e.pipe == nil { // else whoever carries it closes it
		e.close()
	}
}

// drop closes all files, when nobody works on them any more.
func (r *Relay) drop() {
	for _, e := range r.execs {
		e.close()
	}
}

// interrupted is for after the end of a session. What was under way between two ends cannot be known to have arrived.
func (r *Relay) interrupted() {
	for id, e := range r.execs {
		for i := range e.logs {
			e.logs[i].lost = 0
		}
		if e.pipe != nil {
			e.close()
			delete(r.execs, id)
		}
		if in := e.input; in != nil && len(in.credits) < protocol.DataWindow && !in.over.Swap(true) {
			in.close()
			r.Log.Warn("the way into a sandbox broke while input was under way: the input of the exec is closed", "exec_id", id)
		}
	}
}
