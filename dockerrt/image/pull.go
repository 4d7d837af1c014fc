package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"
)

// pull is one pull of one reference.
type pull struct {
	store  *Store
	named  reference.Named
	ctx    context.Context
	cancel context.CancelCauseFunc

	waiters int // under store.mu

	mu       sync.Mutex
	progress Progress
	news     chan struct{} // closed at the next report

	done  chan struct{}
	image image.InspectResponse // once done
	err   error                 // once done
}

func newPull(s *Store, named reference.Named) *pull {
	p := &pull{
		store: s, named: named, done: make(chan struct{}), news: make(chan struct{}),
		progress: Progress{Image: reference.FamiliarString(named)},
	}
	p.ctx, p.cancel = context.WithCancelCause(s.closed)
	return p
}

func (p *pull) run() {
	defer close(p.done)
	defer p.cancel(nil)
	began := time.Now()
	p.image, p.err = p.pull()
	p.store.mu.Lock()
	p.store.forget(p)
	p.store.mu.Unlock()
	log := p.store.log.With("image", p.named.String(), "took", time.Since(began))
	if p.err != nil {
		log.Warn("image not pulled", "err", p.err)
		return
	}
	log.Info("image pulled", "id", p.image.ID, "bytes", p.progress.Done)
}

// wait returns when the pull is done, or with the error of ctx.
func (p *pull) wait(ctx context.Context, progress func(Progress)) error {
	var last Progress
	report := func() <-chan struct{} {
		p.mu.Lock()
		now, news := p.progress, p.news
		p.mu.Unlock()
		if progress != nil && now != last {
			progress(now)
		}
		last = now
		return news
	}
	news := report()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.done:
			if p.err == nil {
				report()
			}
			return nil
		case <-news:
			news = report()
		}
	}
}

// publish sets the progress, and wakes those who wait when tell is set.
func (p *pull) publish(now Progress, report bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = now
	if report {
		close(p.news)
		p.news = make(chan struct{})
	}
}

func (p *pull) pull() (image.InspectResponse, error) {
	none := image.InspectResponse{}
	used := credentialsFor(p.ctx, p.store.configDir, reference.Domain(p.named), p.store.helperTime)
	if used.broken != nil {
		p.store.log.Warn("pulling without credentials", "image", p.named.String(), "err", used.broken)
	}
	stall := time.AfterFunc(p.store.stallTime, func() { p.cancel(ErrStalled) })
	defer stall.Stop()
	body, err := p.store.api.ImagePull(p.ctx, p.named.String(), image.PullOptions{RegistryAuth: used.header})
	if err != nil {
		return none, p.explain(err, used)
	}
	defer body.Close()
	if err := p.follow(body, func() { stall.Reset(p.store.stallTime) }); err != nil {
		return none, p.explain(err, used)
	}
	stall.Stop()
	found, err := p.store.inspect(p.ctx, p.named.String())
	if err != nil && p.ctx.Err() != nil {
		return none, p.explain(err, used)
	}
	return found, err
}

// follow reads the engine's messages to their end. A message that tells of something new calls moved.
func (p *pull) follow(body io.Reader, moved func()) error {
	layers := layers{image: p.progress.Image}
	reported := time.Now() // when the pull began, to those who were there
	for messages := json.NewDecoder(body); ; {
		var m jsonmessage.JSONMessage
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			p.publish(layers.end(), false)
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		if !layers.apply(m) {
			continue
		}
		moved()
		now := time.Now()
		report := now.Sub(reported) >= p.store.reportTime
		if report {
			reported = now
		}
		p.publish(layers.progress(), report)
	}
}

// explain says what went wrong, to what, and what to do next.
func (p *pull) explain(err error, used credentials) error {
	host, ref := reference.Domain(p.named), reference.FamiliarString(p.named)
	if p.ctx.Err() != nil {
		if cause := context.Cause(p.ctx); !errors.Is(cause, ErrStalled) {
			return cause
		}
		return fmt.Errorf("%w: %s: %s sent nothing new for %s, after about %d of %d bytes: check its state and this host's network, and try again",
			ErrStalled, ref, host, p.store.stallTime, p.progress.Done, p.progress.Total)
	}
	if engineLost(err) {
		return fmt.Errorf("image %s: the engine went away during the pull: %w", ref, err)
	}
	kind := classify(p.named, err)
	next := "check the reason, and try docker pull " + ref
	switch kind {
	case ErrNotFound:
		next = fmt.Sprintf("check name and tag at %s, or load the image with docker load", host)
	case ErrDenied:
		next = fmt.Sprintf("%s was shown %s: check the name, and run docker login %s as the daemon's user", host, used, host)
	case ErrNoSpace:
		next = "make room on the engine's disk, with docker system prune for one"
	case ErrUnreachableRegistry:
		next = fmt.Sprintf("check that %s is right and that the engine's host reaches it", host)
	}
	return fmt.Errorf("%w: %s: %w: %s", kind, ref, err, next)
}
