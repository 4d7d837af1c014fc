package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What guessing is slowed down to, for each address. A token that is right is never made to wait.
const (
	guessBurst  = 20
	guessPause  = time.Second // between two answers beyond it
	maxPause    = 30 * time.Second
	maxWaiting  = 256 // wrong tokens at once that wait for their answer
	maxGuessers = 10_000
)

var errGuessing = errors.New("too many wrong tokens: try again later")

// guesses count wrong tokens by address.
type guesses struct {
	waiting chan struct{}
	mu      sync.Mutex
	by      map[string]*rate.Limiter
}

// slow returns when a wrong token may be answered; it fails with errGuessing where too many wait for that.
func (g *guesses) slow(ctx context.Context, remote string) error {
	pause := g.reserve(remote)
	if pause == 0 {
		return nil
	}
	select {
	case g.waiting <- struct{}{}:
		defer func() { <-g.waiting }()
	default:
		return errGuessing
	}
	after := time.NewTimer(min(pause, maxPause))
	defer after.Stop()
	select {
	case <-after.C:
	case <-ctx.Done():
	}
	return nil
}

func (g *guesses) reserve(remote string) time.Duration {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil || len(g.by) >= maxGuessers {
		g.by = map[string]*rate.Limiter{}
	}
	limiter := g.by[host]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(guessPause), guessBurst)
		g.by[host] = limiter
	}
	return limiter.Reserve().Delay()
}
