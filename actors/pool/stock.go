package pool

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// empty takes out all that which accepts.
func (p *Pool) empty(which func(Taken) bool) (out []Taken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.classes {
		s.ready = slices.DeleteFunc(s.ready, func(t Taken) bool {
			if which(t) {
				out = append(out, t)
				return true
			}
			return false
		})
	}
	return out
}

// vacate removes what is at a place, also while the pool ends; what cannot be removed by then is removed at the next start.
func (p *Pool) vacate(place, why string) {
	defer p.wake()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	for {
		err := p.warmer.Vacate(p.clearing, place)
		p.log.Info("a sandbox made ahead is removed", slog.String("place", place), slog.String("why", why), slog.Any("error", err))
		if err == nil {
			return
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-p.ctx.Done():
			return
		}
	}
}

// makeOne makes one of the class, which counts it as being made.
func (p *Pool) makeOne(s *supply) {
	id := uuid.New()
	place := runtime.PlacePrefix + hex.EncodeToString(id[:6])
	p.mu.Lock()
	p.moving[place] = false
	p.mu.Unlock()
	made, err := func() (made runtime.Place, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("agboxd crashed: %v", reason)
			}
		}()
		return p.warmer.Warm(p.ctx, place, s.template)
	}()
	p.mu.Lock()
	s.making--
	lost := p.arrived(place) && err == nil
	if lost {
		err = errors.New("it ended at once")
		p.work.Go(func() { p.vacate(place, err.Error()) })
	}
	switch {
	case err == nil && p.ctx.Err() != nil && !p.config.Keep: // too late for Stop to find it
		p.work.Go(func() { p.vacate(place, "the daemon ends") })
	case err == nil:
		s.problem, s.retryAt = "", time.Time{}
		s.retries.Reset()
		s.ready = append(s.ready, Taken{made, s.class})
	case p.ctx.Err() == nil:
		s.problem = err.Error()
		if errors.Is(err, runtime.ErrUnfit) {
			s.unfit = s.problem
		}
		s.retryAt = p.now().Add(s.retries.NextBackOff())
		if !lost && s.unfit == "" { // Warm may have left something
			p.work.Go(func() { p.vacate(place, "it could not be made") })
		}
		p.log.Warn("a sandbox could not be made ahead", slog.String("image", s.template.GetImage()), slog.Any("error", err))
	}
	p.mu.Unlock()
	p.wake()
}

// adopt takes over what is ready, and removes the rest. A class that the configuration does not name counts as created just now.
func (p *Pool) adopt() error {
	found, err := p.warmer.Vacant(p.ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, place := range found {
		class, template, whyNot := Fit(place.Spec)
		if !place.Ready || whyNot != "" {
			p.work.Go(func() { p.vacate(place.ID, "it is half made, or not as it would be made now") })
			continue
		}
		s := p.supply(class, template)
		if s.size == 0 && p.config.Recent > 0 {
			p.recent(s)
		}
		s.ready = append(s.ready, Taken{place, class})
	}
	return nil
}

// recheck looks whether those that are ready still are, where that may have been missed.
func (p *Pool) recheck() error {
	p.mu.Lock()
	missed := p.missed
	p.missed = false
	p.mu.Unlock()
	if !missed {
		return nil
	}
	found, err := p.warmer.Vacant(p.ctx)
	if err != nil {
		p.mu.Lock()
		p.missed = true
		p.mu.Unlock()
		return err
	}
	ready := map[string]bool{}
	for _, place := range found {
		ready[place.ID] = place.Ready
	}
	for _, taken := range p.empty(func(t Taken) bool { return !ready[t.ID] }) {
		p.work.Go(func() { p.vacate(taken.ID, "it ended") })
	}
	return nil
}
