package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// ExecSpec is a command to run, or to attach to when init knows its id. For protocol.CommandID,
// which can only be attached to, ID and OnStarted are all that counts.
type ExecSpec struct {
	ID   string
	Argv []string
	// Env holds "K=V" entries on top of the container's environment.
	Env []string
	// Cwd is relative to the sandbox's working directory; "" is that directory.
	Cwd string
	// FromHome: Cwd is relative to the user's home.
	FromHome bool
	// User is a name or number, optionally ":group"; "" leaves it to the sandbox's rule.
	User string
	// Timeout 0 means none. Grace is the time from TERM to KILL once it strikes.
	Timeout, Grace time.Duration
	// MaxOutput is how many bytes of each of stdout and stderr go to its file; 0 means all. The rest is
	// read, so that the command goes on, and counted in Result.OutputDropped.
	MaxOutput uint64
	// Files are stdout, stderr and the record. They stay the caller's, who may close them once
	// OnStarted was called or Exec has returned.
	Files [3]*os.File
	// Stdin are the read end of the command's input, a blocking one, and a write end that init keeps open until
	// CloseStdin; nil for an input that is at its end. They are the caller's, as Files.
	Stdin [2]*os.File
	// Index is the file for the index of the output (see protocol.AppendRun), nil for none; it is the caller's, as Files. A command
	// with a terminal leaves it empty.
	Index *os.File
	// Terminal, unless nil: the command has a terminal of this size, which its input is typed at, and which stdout shows.
	Terminal *protocol.Size
	// OnStarted is called at most once, from within Exec, when the command is known to run. Its
	// argument is the pid inside the sandbox. May be nil.
	OnStarted func(pid int)
}

// call is an Exec that waits. Fields are guarded by Link.mu.
type call struct {
	pid       int
	result    *protocol.Result
	cancelled bool
	grace     time.Duration
	closed    bool          // the input, for good
	wake      chan struct{} // one token: a field above has changed
	done      chan struct{} // closed when the Exec returns
}

func (c *call) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Exec starts the command exactly once per life of init and waits for its result, over any number
// of reconnects. A command that could not be run is a Result with an ErrorCode, not an error.
// When ctx ends it stops waiting and returns ctx's error, while the command goes on; a later Exec
// with the same id attaches again. A call for an id that another one waits for gets the same result,
// or takes its place when that one gives up. The result is repeated by init until Ack.
//
// With protocol.CommandID it waits for the main command. That is for after Boot: an init that knows
// of none answers with a Result whose ErrorCode is CodeStartFailed.
func (l *Link) Exec(ctx context.Context, spec ExecSpec) (protocol.Result, error) {
	c, result, err := l.register(ctx, spec.ID)
	if c == nil {
		return result, err
	}
	defer l.unregister(spec.ID)

	var sent, cancelSent, closeSent *Peer // the connections that have heard of this call, of its cancellation, of its input's end
	var graceSent time.Duration
	for {
		l.mu.Lock()
		now, p, changed := *c, l.peer, l.changed
		if !l.serves(p) {
			p = nil
		}
		l.mu.Unlock()
		if now.pid != 0 && spec.OnStarted != nil {
			spec.OnStarted(now.pid)
			spec.OnStarted = nil
		}
		if now.result != nil {
			return *now.result, nil
		}
		if p != nil && p != sent {
			pid, known := p.known[spec.ID]
			if sent == nil || !known {
				if err := spec.send(p); err != nil {
					return protocol.Result{}, fmt.Errorf("link: exec %s: %w", spec.ID, err)
				}
			} else if now.pid == 0 {
				now.pid = pid
			}
			sent = p
		}
		if p != nil && now.cancelled && (p != cancelSent || now.grace != graceSent) {
			p.send(&protocol.Cancel{ID: spec.ID, Grace: now.grace})
			cancelSent, graceSent = p, now.grace
		}
		if p != nil && now.closed && p != closeSent {
			p.send(&protocol.CloseStdin{ID: spec.ID})
			closeSent = p
		}
		if now.pid != 0 && spec.OnStarted != nil {
			spec.OnStarted(now.pid)
			spec.OnStarted = nil
		}
		select {
		case <-c.wake:
		case <-changed:
		case <-ctx.Done():
			return protocol.Result{}, ctx.Err()
		case <-l.ctx.Done():
			return protocol.Result{}, ErrClosed
		}
	}
}

func (s *ExecSpec) send(p *Peer) error {
	m := &protocol.Exec{
		ID: s.ID, Argv: s.Argv, Env: s.Env, Cwd: s.Cwd, User: s.User,
		Timeout: s.Timeout, Grace: s.Grace, MaxOutput: s.MaxOutput, Terminal: s.Terminal, FromHome: s.FromHome,
	}
	var files []*os.File
	if s.ID != protocol.CommandID {
		files, m.Roles = append(files, s.Files[:]...), append(m.Roles, protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord)
		if s.Stdin[0] != nil {
			files, m.Roles = append(files, s.Stdin[:]...), append(m.Roles, protocol.RoleStdin, protocol.RoleStdinKeeper)
		}
		if s.Index != nil && s.Terminal == nil {
			files, m.Roles = append(files, s.Index), append(m.Roles, protocol.RoleIndex)
		}
	}
	err := p.sendFiles(m, files)
	if errors.Is(err, protocol.ErrTooBig) {
		err = fmt.Errorf("arguments and environment are too long: %w", err)
	}
	return err
}

// register makes a call for the id once there is no other, and returns none but the result when that one brought it.
func (l *Link) register(ctx context.Context, id string) (*call, protocol.Result, error) {
	for {
		l.mu.Lock()
		earlier := l.calls[id]
		if l.ctx.Err() != nil {
			l.mu.Unlock()
			return nil, protocol.Result{}, ErrClosed
		}
		if earlier == nil {
			defer l.mu.Unlock()
			c := &call{wake: make(chan struct{}, 1), done: make(chan struct{})}
			c.grace, c.cancelled = l.cancels[id]
			_, c.closed = l.closes[id]
			delete(l.cancels, id)
			delete(l.closes, id)
			l.calls[id] = c
			l.stirred()
			return c, protocol.Result{}, nil
		}
		l.mu.Unlock()
		select {
		case <-earlier.done:
			if earlier.result != nil {
				return nil, *earlier.result, nil
			}
		case <-ctx.Done():
			return nil, protocol.Result{}, ctx.Err()
		}
	}
}

func (l *Link) unregister(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls[id]
	if c.cancelled && c.result == nil {
		l.cancels[id] = c.grace
	}
	if c.closed && c.result == nil {
		l.closes[id] = struct{}{}
	}
	delete(l.calls, id)
	close(c.done)
}

// Ack tells init that the caller has made the result durable. It never blocks; while init is not
// connected it is remembered. It also forgets a Cancel and a CloseStdin of that id.
func (l *Link) Ack(execID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cancels, execID)
	delete(l.closes, execID)
	if l.peer != nil {
		l.peer.send(&protocol.Ack{ID: execID})
	} else {
		l.acks[execID] = struct{}{}
	}
}

// Cancel ends a command with all of its processes: TERM, and KILL after grace. It returns at once;
// the request is remembered and said again after a reconnect until the result arrives or Ack is
// called, so it may also come before the Exec that it is meant for. A command that has ended is
// not affected. The only error is ErrClosed.
func (l *Link) Cancel(_ context.Context, execID string, grace time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	if c := l.calls[execID]; c != nil {
		c.cancelled, c.grace = true, grace
		c.poke()
		return nil
	}
	l.cancels[execID] = grace
	if l.peer != nil {
		l.peer.send(&protocol.Cancel{ID: execID, Grace: grace})
	}
	return nil
}
