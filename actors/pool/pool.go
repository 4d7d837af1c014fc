package pool

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Config holds what a person can set.
type Config struct {
	// Warm are the kinds that are always kept.
	Warm []Kind
	// Recent is how many are kept of the class that was created last, for RecentFor after its last create; 0: none.
	Recent    int
	RecentFor time.Duration
	// Keep leaves those that are ready when the daemon ends; the next one adopts them.
	Keep bool
	// Short says what the machine has too little of to keep any, "" for nothing; nil: never. It may look at a disk.
	Short func() string
	// Changed is called with how many a create could take once that has changed; nil: never. It must not block.
	Changed func(ready int)
}

// Kind is a spec as it was accepted, and how many are to be ready.
type Kind struct {
	Spec *agboxv1.CreateSpec
	Size int
}

const (
	// makers is how many are made at once: more would only hold up those that somebody waits for.
	makers = 2
	// firstRetry and lastRetry space tries to make one, after one that failed or after one that died.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// lookEvery is how often memory and disk are looked at while any are kept.
	lookEvery = time.Minute
	// drainTime bounds the removal of what is ready when the daemon ends. The next start removes the rest.
	drainTime = 20 * time.Second
)

// Pool keeps sandboxes ready. Its methods may be called from any goroutine between Start and Stop.
type Pool struct {
	config Config
	warmer runtime.Warmer
	now    func() time.Time
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	// clearing ends when what is removed at the daemon's end is left to the next start.
	clearing context.Context
	leave    context.CancelFunc
	work     sync.WaitGroup
	stir     chan struct{} // one token: something has changed
	loop     chan struct{} // closed when nothing is begun any more; nil before Start

	mu      sync.Mutex
	classes []*supply // in the order of the configuration, then of their first create
	takenAt time.Time
	short   string
	looked  time.Time
	told    int // by Changed
	adopted bool
	stopped bool              // nothing is begun any more from outside
	missed  bool              // one that is ready may have been lost unseen
	misses  map[string]uint64 // creates that took none, by why
	// moving are the places that are being made or were handed out; true for one that was lost meanwhile.
	moving map[string]bool
}

// supply is a class and what there is of it.
type supply struct {
	class        Class
	template     *agboxv1.CreateSpec
	size         int
	recentUntil  time.Time
	ready        []Taken
	making       int
	retryAt      time.Time
	retries      *backoff.ExponentialBackOff
	unfit        string
	problem      string
	hits, misses uint64
}

// Taken is one that was ready and is the caller's now.
type Taken struct {
	runtime.Place
	Class Class
}

// New makes a pool that keeps nothing yet.
func New(config Config, warmer runtime.Warmer, now func() time.Time, log *slog.Logger) *Pool {
	p := &Pool{config: config, warmer: warmer, now: now, log: log,
		stir: make(chan struct{}, 1), misses: map[string]uint64{}, moving: map[string]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.clearing, p.leave = context.WithCancel(context.Background())
	for _, kind := range config.Warm {
		class, template, whyNot := Fit(kind.Spec)
		if whyNot != "" {
			log.Error("a kind of sandbox cannot be made ahead", slog.String("image", kind.Spec.GetImage()), slog.String("why", whyNot))
			continue
		}
		p.supply(class, template).size += kind.Size
	}
	return p
}

// supply returns the class, which it makes known; p.mu is held, or p nobody's yet.
func (p *Pool) supply(class Class, template *agboxv1.CreateSpec) *supply {
	for _, s := range p.classes {
		if s.class == class {
			return s
		}
	}
	retries := backoff.NewExponentialBackOff()
	retries.InitialInterval, retries.MaxInterval = firstRetry, lastRetry
	s := &supply{class: class, template: template, retries: retries}
	p.classes = append(p.classes, s)
	return s
}

// Start begins to work: first it adopts what an earlier daemon has left.
func (p *Pool) Start() {
	p.loop = make(chan struct{})
	p.work.Go(func() {
		defer close(p.loop)
		p.run()
	})
}

// Stop ends it, if it was started, and removes what is ready unless that is to be kept. It returns when no goroutine of the pool is left;
// what is not removed when ctx ends, or after a while, is left to the next start.
func (p *Pool) Stop(ctx context.Context) {
	p.cancel()
	defer p.leave()
	if p.loop == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	defer context.AfterFunc(ctx, p.leave)()
	<-p.loop
	if !p.config.Keep {
		if !p.adopted {
			found, err := p.warmer.Vacant(ctx)
			if err != nil {
				p.log.Warn("what was made ahead cannot be listed, and is left to the next start", slog.Any("error", err))
			}
			for _, place := range found {
				p.work.Go(func() { p.vacate(place.ID, "the daemon ends") })
			}
		}
		for _, taken := range p.empty(func(Taken) bool { return true }) {
			p.work.Go(func() { p.vacate(taken.ID, "the daemon ends") })
		}
	}
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.work.Wait()
}

// Lost says that what is at the place may be of no use any more.
func (p *Pool) Lost(place, why string) {
	p.mu.Lock()
	if _, moving := p.moving[place]; moving {
		p.moving[place] = true
	} else if !p.adopted { // adopt may have looked at it already
		p.missed = true
	}
	p.mu.Unlock()
	for _, gone := range p.empty(func(t Taken) bool { return t.ID == place }) {
		p.mu.Lock()
		for _, s := range p.classes {
			if s.class == gone.Class {
				s.problem, s.retryAt = why, p.now().Add(s.retries.NextBackOff())
			}
		}
		if !p.stopped {
			p.work.Go(func() { p.vacate(gone.ID, why) })
		}
		p.mu.Unlock()
	}
	p.wake()
}

// Missed says that any that is ready may have been lost unseen.
func (p *Pool) Missed() {
	p.mu.Lock()
	p.missed = true
	p.mu.Unlock()
	p.wake()
}

// ImagesChanged says that names of images may mean others than before.
func (p *Pool) ImagesChanged() {
	p.mu.Lock()
	for _, s := range p.classes {
		s.unfit, s.retryAt = "", time.Time{}
	}
	p.mu.Unlock()
	p.wake()
}

// wake has the loop look.
func (p *Pool) wake() {
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

func (p *Pool) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.stir:
		case <-timer.C:
		}
		at := p.step()
		timer.Stop()
		if !at.IsZero() {
			timer.Reset(max(at.Sub(p.now()), time.Millisecond))
		}
	}
}

// step does what is due and returns when it has to be called again, zero for never.
func (p *Pool) step() time.Time {
	if !p.adopted {
		if err := p.adopt(); err != nil {
			if p.ctx.Err() == nil {
				p.log.Warn("what was made ahead cannot be listed, trying again", slog.Any("error", err))
			}
			return p.now().Add(firstRetry)
		}
		p.mu.Lock()
		p.adopted = true
		p.mu.Unlock()
	}
	if err := p.recheck(); err != nil {
		return p.now().Add(firstRetry)
	}
	short := p.look()
	p.outdated()
	p.mu.Lock()
	now := p.now()
	state := State{TakenAt: p.takenAt, Recent: p.config.Recent, Makers: makers, Short: short != ""}
	kept := false
	for _, s := range p.classes {
		supply := Supply{Class: s.class, Size: s.size, RecentUntil: s.recentUntil, Making: s.making, RetryAt: s.retryAt, Unfit: s.unfit != ""}
		for _, t := range s.ready {
			supply.Ready = append(supply.Ready, t.ID)
		}
		kept = kept || s.size > 0 || now.Before(s.recentUntil)
		state.Classes = append(state.Classes, supply)
	}
	p.tell()
	plan := Next(state, now)
	for _, class := range plan.Make {
		for _, s := range p.classes {
			if s.class == class {
				s.making++
				p.work.Go(func() { p.makeOne(s) })
			}
		}
	}
	p.classes = slices.DeleteFunc(p.classes, func(s *supply) bool { // a class that nobody asks for any more is forgotten
		return s.size == 0 && !now.Before(s.recentUntil) && len(s.ready)+s.making == 0
	})
	p.mu.Unlock()
	for _, taken := range p.empty(func(t Taken) bool { return slices.Contains(plan.Remove, t.ID) }) {
		p.work.Go(func() { p.vacate(taken.ID, "more are ready than are wanted") })
	}
	if next := now.Add(lookEvery); kept && p.config.Short != nil && (plan.At.IsZero() || next.Before(plan.At)) {
		return next
	}
	return plan.At
}

// tell has Changed called where there is something new; p.mu is held.
func (p *Pool) tell() {
	ready := 0
	for _, s := range p.classes {
		if image, known := p.warmer.ImageID(s.template.GetImage()); known && len(s.ready) > 0 && s.ready[0].Image == image {
			ready += len(s.ready)
		}
	}
	if p.config.Changed != nil && ready != p.told {
		p.told = ready
		p.config.Changed(ready)
	}
}

// look says what the machine is short of; it looks again only after a while.
func (p *Pool) look() string {
	if p.config.Short == nil {
		return ""
	}
	now := p.now()
	if p.short == "" && now.Sub(p.looked) < time.Second {
		return ""
	}
	p.looked = now
	short := p.config.Short()
	p.mu.Lock()
	defer p.mu.Unlock()
	if short != "" && p.short == "" {
		p.log.Warn("nothing is made ahead", slog.String("why", short))
	}
	p.short = short
	return short
}

// outdated removes those whose image's name means another one now, or where that is not known any more.
func (p *Pool) outdated() {
	for _, taken := range p.empty(func(t Taken) bool {
		image, known := p.warmer.ImageID(t.Spec.GetImage())
		return known && image != t.Image
	}) {
		p.work.Go(func() { p.vacate(taken.ID, "its image has changed") })
	}
}

// Census tells what there is, by class, and how many creates took none, by why.
func (p *Pool) Census() (classes []*agboxv1.PoolClass, misses map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, now := State{Recent: p.config.Recent, Short: p.short != ""}, p.now()
	for _, s := range p.classes {
		size := state.Wanted(Supply{Size: s.size, RecentUntil: s.recentUntil, Unfit: s.unfit != ""}, now)
		problem := s.problem
		if p.short != "" {
			problem = p.short
		}
		classes = append(classes, &agboxv1.PoolClass{Class: string(s.class), Image: s.template.GetImage(), Size: uint32(size),
			Ready: uint32(len(s.ready)), Making: uint32(s.making), Hits: s.hits, Misses: s.misses, Problem: problem})
	}
	return classes, maps.Clone(p.misses)
}
