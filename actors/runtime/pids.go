package runtime

import (
	"context"
	"sync"
)

// Pids know under which pid, inside their sandboxes, commands run. The zero value is ready, and all may be called from any goroutine.
type Pids struct {
	mu    sync.Mutex
	execs map[string]*started
}

// started is there while the command runs, or somebody waits for that.
type started struct {
	pid     int // 0: not yet
	known   chan struct{}
	waiting int
}

// entry is called with the lock held.
func (p *Pids) entry(execID string) *started {
	e := p.execs[execID]
	if e == nil {
		if p.execs == nil {
			p.execs = map[string]*started{}
		}
		e = &started{known: make(chan struct{})}
		p.execs[execID] = e
	}
	return e
}

// Set says that the command runs.
func (p *Pids) Set(execID string, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(execID)
	if e.pid == 0 && pid != 0 {
		close(e.known)
	}
	if pid != 0 {
		e.pid = pid
	}
}

// Forget says that nobody follows the command any more.
func (p *Pids) Forget(execID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.execs[execID]
	if e == nil {
		return
	}
	if delete(p.execs, execID); e.waiting > 0 && e.pid == 0 {
		p.execs[execID] = e
	}
}

// Of returns 0 for a command that is not known to run.
func (p *Pids) Of(execID string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.execs[execID]; e != nil {
		return e.pid
	}
	return 0
}

// Await returns the pid once the command runs, or ctx's error.
func (p *Pids) Await(ctx context.Context, execID string) (int, error) {
	p.mu.Lock()
	e := p.entry(execID)
	e.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if e.waiting--; e.waiting == 0 && e.pid == 0 && p.execs[execID] == e {
			delete(p.execs, execID)
		}
	}()
	select {
	case <-e.known:
		p.mu.Lock()
		defer p.mu.Unlock()
		return e.pid, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
