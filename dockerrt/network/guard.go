package network

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/network/isolation"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// guard keeps the packet rules as what exists wants them. Nothing is counted: a bridge of ours that the rules do not know
// lets nothing out, one that is gone is forgotten, and whoever alters the rules finds them put back.
type guard struct {
	rules    *isolation.Rules
	warn     func(message string, err error)
	watching sync.WaitGroup
	// altered holds a token while the kernel has told of a change that nobody has looked at.
	altered chan struct{}

	mu sync.Mutex
	// problem is why the kernel did not take the rules last time, elsewhere why they do not hold for the engine's networks.
	problem, elsewhere error
}

var (
	// errElsewhere: rules that agboxd sets do not hold for this engine's sandboxes.
	errElsewhere = errors.New("the engine's networks are in another network namespace than agboxd, or on another machine")
	// errEarlier: the rules go by the names of bridges, and this one has another.
	errEarlier = errors.New("an earlier agboxd made the sandbox's network: delete the sandbox and create it again")
)

// openGuard puts the rules in force for the networks that there are, and keeps them so until Close. Without the right to
// do so it goes on without them, unless the configuration requires them.
func (ns *Networks) openGuard(networks []network.Summary) error {
	g := &guard{
		rules: isolation.Open(ns.engine.Instance(), ns.config.Pool), altered: make(chan struct{}, 1),
		warn: func(message string, err error) { ns.log.Warn(message, "error", err) },
	}
	ns.guard = g
	if err := ns.Compare(networks); err != nil && ns.config.Required {
		return fmt.Errorf("isolation.required is set, and sandboxes cannot be kept from this host: %w", err)
	}
	g.watching.Go(func() {
		err := g.rules.Watch(ns.engine.Closed(), func() {
			select {
			case g.altered <- struct{}{}:
			default:
			}
		})
		if err != nil && !errors.Is(err, isolation.ErrNotPermitted) {
			ns.log.Warn("packet rules that somebody alters are put back only when agboxd next looks", "error", err)
		}
	})
	g.watching.Go(func() {
		for {
			select {
			case <-g.altered:
				g.hold(nil)
			case <-ns.engine.Closed().Done():
				return
			}
		}
	})
	return nil
}

// Compare brings the rules to what exists, given the engine's networks or those of them that are ours, and returns why
// sandboxes are not kept in.
func (ns *Networks) Compare(networks []network.Summary) error {
	admitted := ns.guard.rules.Admitted() // before the look: whoever is admitted after that has a bridge that it does not show
	here, err := interfaces()
	if err != nil {
		return err
	}
	g := ns.guard
	reaches, earlier := map[string]isolation.Reach{}, false
	var ours, others evidence
	for _, n := range networks {
		bridge, seen := bridgeOf(n), &others
		if n.Labels[engine.LabelInstance] == ns.engine.Instance() {
			seen = &ours
			earlier = earlier || !g.rules.Holds(bridge)
		}
		seen.add(bridge, here)
		if spec, owned := ns.specOf(n); owned && seen == &ours && g.rules.Holds(bridge) && here[bridge] {
			reaches[bridge] = ns.reach(spec)
		}
	}
	for _, bridge := range admitted {
		if !here[bridge] {
			if err := g.rules.Release(bridge); err != nil {
				g.warn("a network's packet rules could not be taken away", err)
			}
		}
	}
	if !earlier {
		_ = g.rules.RemoveEarlier() // of an error hold tells
	}
	if ours.none() {
		ours = others
	}
	g.place(ours.elsewhere())
	err = g.hold(reaches)
	for _, n := range networks {
		_, admitted := reaches[bridgeOf(n)]
		if _, owned := ns.specOf(n); admitted && !owned { // it was returned meanwhile
			g.release(bridgeOf(n))
		}
	}
	return errors.Join(err, ours.elsewhere())
}

// evidence is how many bridges whose names nobody can have by chance are in this network namespace, and how many are not.
type evidence struct{ here, missing int }

func (e *evidence) add(bridge string, here map[string]bool) {
	switch {
	case bridge == "":
	case here[bridge]:
		e.here++
	default:
		e.missing++
	}
}

func (e *evidence) none() bool { return e.here+e.missing == 0 }

func (e *evidence) elsewhere() error {
	if e.missing > 0 && e.here == 0 {
		return errElsewhere
	}
	return nil
}

// place notes whether the engine's bridges are where the rules are.
func (g *guard) place(elsewhere error) {
	g.mu.Lock()
	news := elsewhere != nil && g.elsewhere == nil
	g.elsewhere = elsewhere
	g.mu.Unlock()
	if news {
		g.warn("sandboxes are not kept from this host and from each other", elsewhere)
	}
}

// hold compares the kernel with what it should have, these beside what was admitted, and mends it. It returns why it cannot.
func (g *guard) hold(reaches map[string]isolation.Reach) error {
	altered, err := g.rules.Hold(reaches)
	if altered != nil {
		g.warn("audit: the packet rules were altered and are put back", altered)
	}
	g.mu.Lock()
	news := err != nil && (g.problem == nil || g.problem.Error() != err.Error())
	g.problem = err
	g.mu.Unlock()
	if news {
		g.warn("sandboxes are not kept from this host and from each other", err)
	}
	return err
}

// admit lets what is on the bridge reach what reach says, and no more, and returns why that does not hold.
func (g *guard) admit(bridge string, reach isolation.Reach) error {
	if !g.rules.Holds(bridge) {
		return errEarlier
	}
	if _, err := net.InterfaceByName(bridge); err != nil {
		g.place(errElsewhere)
		return errElsewhere
	}
	g.place(nil)
	if err := g.rules.Admit(bridge, reach); errors.Is(err, isolation.ErrInvalid) {
		return err
	}
	return g.hold(nil)
}

// release forgets the bridge of a network that is gone.
func (g *guard) release(bridge string) {
	if err := g.rules.Release(bridge); err != nil {
		g.warn("a network's packet rules could not be taken away", err)
	}
	g.hold(nil)
}

// withdraw is release, and returns why the rules are not seen to be without the bridge.
func (g *guard) withdraw(bridge string) error {
	if err := g.rules.Release(bridge); err != nil {
		return err
	}
	return g.hold(nil)
}

// close leaves the rules in force as long as there is a bridge of ours.
func (g *guard) close() error {
	g.watching.Wait()
	here, err := interfaces()
	if err != nil {
		return fmt.Errorf("the packet rules stay: %w", err)
	}
	for name := range here {
		if g.rules.Holds(name) {
			return nil
		}
	}
	if err := g.rules.Remove(); !errors.Is(err, isolation.ErrNotPermitted) {
		return err
	}
	return nil
}

// Isolated returns why sandboxes are not kept from the host and from each other, or would not be if there were any; nil when
// they are. It looks, and mends what it can.
func (ns *Networks) Isolated() error {
	if err := ns.guard.hold(nil); err != nil {
		return err
	}
	ns.guard.mu.Lock()
	defer ns.guard.mu.Unlock()
	return ns.guard.elsewhere
}

// codeRestriction is the code of a network mode that cannot be had here.
const codeRestriction = "NETWORK_RESTRICTION_UNAVAILABLE"

// admit has the packet rules hold for a sandbox's network. It refuses where they do not and must.
func (ns *Networks) admit(bridge string, spec *agboxv1.NetworkSpec) error {
	err := ns.guard.admit(bridge, ns.reach(spec))
	switch {
	case err == nil:
		return nil
	case restricted(spec):
		return unrestricted(spec, err)
	case ns.config.Required:
		return fmt.Errorf("isolation.required is set: %w", err)
	}
	return nil
}

func unrestricted(spec *agboxv1.NetworkSpec, err error) error {
	return engine.Coded(codeRestriction, "network mode %s needs packet rules, and agboxd cannot set them: %w", spec.GetMode(), err)
}
