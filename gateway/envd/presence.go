package envd

import (
	"context"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// presence follows the sandboxes that streams are open to, one subscription each. The zero value is ready.
type presence struct {
	mu    sync.Mutex
	boxes map[string]*followed
}

// followed is a sandbox that runs. gone is closed when it does not any more, or nobody can tell.
type followed struct {
	uses int
	gone chan struct{}
	stop context.CancelFunc
}

// follow returns what is closed when the sandbox stops to run. leave must be called.
func (h *Handler) follow(b *box) (gone <-chan struct{}, leave func()) {
	p := &h.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.boxes[b.id]
	if f == nil {
		ctx, stop := context.WithCancel(h.closing)
		f = &followed{gone: make(chan struct{}), stop: stop}
		if p.boxes == nil {
			p.boxes = map[string]*followed{}
		}
		p.boxes[b.id] = f
		h.work.Go(func() {
			defer stop()
			awaitEnd(ctx, b)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.boxes[b.id] == f {
				delete(p.boxes, b.id)
			}
			close(f.gone)
		})
	}
	f.uses++
	return f.gone, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if f.uses--; f.uses == 0 {
			if p.boxes[b.id] == f {
				delete(p.boxes, b.id)
			}
			f.stop()
		}
	}
}

// awaitEnd returns when the sandbox leaves the states in which it runs, or its events cannot be followed.
func awaitEnd(ctx context.Context, b *box) {
	events, err := b.client.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: b.id, FromSequence: b.handle.GetLastEventSequence()})
	for err == nil {
		var event *agboxv1.SandboxEvent
		if event, err = events.Recv(); err == nil && !usable(event.SandboxState) && event.SandboxState != agboxv1.SandboxState_SANDBOX_STATE_PENDING {
			return
		}
	}
}
