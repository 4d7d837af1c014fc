package link

import (
	"context"
	"os"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// BootStatus tells what became of the image's entrypoint and the start of the main command.
type BootStatus = protocol.BootStatus

// Identity is what a sandbox that was made ahead becomes.
type Identity = protocol.Identity

// Fresh waits for init, and reports whether it was never booted.
func Fresh(ctx context.Context, l *Link) (bool, error) {
	p, err := l.await(ctx, nil, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	return err == nil && !p.booted && !p.booting, err
}

// Boot gives init the primary log, and the file that the main command's record goes to: empty, or
// nil when there is no main command. It waits until the image's entrypoint has handed over, has
// ended, or turns out not to exist; without an entrypoint, until the main command was started.
// When init was booted before, also by an earlier daemon, it returns the status of then and the
// files are not used. The files stay the caller's.
// A sandbox that was made ahead becomes as, which is nil for any other.
func (l *Link) Boot(ctx context.Context, as *Identity, stdout, stderr, record *os.File) (BootStatus, error) {
	files := []*os.File{stdout, stderr}
	if record != nil {
		files = append(files, record)
	}
	var sent *Peer
	for {
		p, err := l.await(ctx, sent, false)
		if err != nil {
			return BootStatus{}, err
		}
		if !p.booted {
			if err := p.sendFiles(&protocol.Boot{As: as}, files); err != nil {
				return BootStatus{}, err
			}
			l.mu.Lock()
			p.booting = true
			l.notify()
			l.mu.Unlock()
		}
		sent = p
		select {
		case <-p.boot:
			l.mu.Lock()
			l.booted, l.held = true, false
			l.notify()
			l.mu.Unlock()
			return p.status, nil
		case <-p.done:
		case <-ctx.Done():
			return BootStatus{}, ctx.Err()
		}
	}
}

// Stop asks init to end everything in the sandbox: TERM, after grace KILL, and then itself. It
// waits for a connection, and returns once the request is on its way.
func (l *Link) Stop(ctx context.Context, grace time.Duration) error {
	var sent *Peer
	for {
		p, err := l.await(ctx, sent, false)
		if err != nil {
			return err
		}
		sent = p
		p.send(&protocol.Stop{Grace: grace})
		select {
		case sent := <-p.queue.Flush():
			if sent {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
