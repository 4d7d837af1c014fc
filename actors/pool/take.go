package pool

import (
	"slices"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Take hands out a ready sandbox that a create with this spec would be the same as, or says why there is none; where nothing is made ahead it is neither. The caller ends that with
// Used or Return.
func (p *Pool) Take(spec *agboxv1.CreateSpec) (taken Taken, whyNot string) {
	if len(p.config.Warm) == 0 && p.config.Recent == 0 {
		return Taken{}, ""
	}
	class, _, whyNot := Fit(spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	if whyNot != "" {
		p.misses[whyNot]++
		return Taken{}, whyNot
	}
	var s *supply
	if i := slices.IndexFunc(p.classes, func(s *supply) bool { return s.class == class }); i >= 0 {
		s = p.classes[i]
	}
	miss := func(why string) (Taken, string) {
		if p.misses[why]++; s != nil {
			s.misses++
		}
		return Taken{}, why
	}
	switch image, known := p.warmer.ImageID(spec.GetImage()); {
	case s == nil:
		return miss("none was made ahead of its class")
	case s.unfit != "":
		return miss("its image or runtime is none that sandboxes are made ahead of")
	case len(s.ready) == 0 && s.making > 0:
		return miss("those of its class were taken, and the next is being made")
	case len(s.ready) == 0:
		return miss("none of its class is ready")
	case !known:
		return miss("which image its name means is not known without asking the engine")
	case s.ready[0].Image != image:
		return miss("its image has changed")
	}
	taken = s.ready[0]
	s.ready = slices.Delete(s.ready, 0, 1)
	p.moving[taken.ID] = false
	return taken, ""
}

// Return takes back what was not needed after all.
func (p *Pool) Return(taken Taken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arrived(taken.ID) {
		if !p.stopped {
			p.work.Go(func() { p.vacate(taken.ID, "it was lost") })
		}
		return
	}
	s := p.supply(taken.Class, taken.Spec)
	s.ready = slices.Insert(s.ready, 0, taken)
	p.wake()
}

// arrived ends the moving of a place and reports whether it was lost meanwhile; p.mu is held.
func (p *Pool) arrived(place string) (lost bool) {
	lost = p.moving[place]
	delete(p.moving, place)
	return lost
}

// Used says that what was taken is a sandbox's now, and reports whether it was lost meanwhile: then nobody has told the sandbox.
func (p *Pool) Used(taken Taken) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takenAt = p.now()
	for _, s := range p.classes {
		if s.class == taken.Class {
			s.hits++
		}
	}
	p.wake()
	return p.arrived(taken.ID)
}

// Created says that a sandbox with this spec was accepted: its class is the one that was created last.
func (p *Pool) Created(spec *agboxv1.CreateSpec) {
	class, template, whyNot := Fit(spec)
	if whyNot != "" || p.config.Recent == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takenAt = p.now()
	p.recent(p.supply(class, template))
	p.wake()
}

// recent makes s the class that was created last; p.mu is held.
func (p *Pool) recent(last *supply) {
	for _, s := range p.classes {
		s.recentUntil = time.Time{}
	}
	last.recentUntil = p.now().Add(p.config.RecentFor)
}
