package chaos

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
)

// restTime is how long things may take to come to rest.
const restTime = 90 * time.Second

func (w *world) rounds(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	told := 0
	for round := 1; w.result.Kills < w.config.Rounds; round++ {
		began := time.Now()
		if err := w.round(ctx); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		found := w.Checker.Report().Violations()
		w.tell("round %d: %d kills, %d violations, %s\n", round, w.result.Kills, len(found), time.Since(began).Round(time.Millisecond))
		for _, v := range found[told:] {
			w.tell("%s\n", v)
		}
		told = len(found)
	}
	return w.finish(ctx)
}

func (w *world) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return w.Daemon.Start(ctx)
}

// round lets the clients ask, kills the daemon meanwhile, waits until all is at rest again, and looks.
func (w *world) round(ctx context.Context) error {
	quiet := make(chan struct{})
	var living sync.WaitGroup
	for _, c := range w.clients {
		living.Go(func() { c.live(ctx, quiet) })
	}
	err := w.disturb(ctx)
	close(quiet)
	if err != nil {
		w.Daemon.Kill() // nobody waits for a daemon that does not come
		return err
	}
	living.Wait()
	if w.own != nil && w.random.Float64() < w.config.Engines {
		if err := w.killEngine(ctx); err != nil {
			return err
		}
	}
	return w.look(ctx)
}

// killEngine kills the engine and then the daemon while commands run, and starts both. It waits until no operation
// is under way: a dockerd 20.10 that is killed while it makes a network cannot start any more.
func (w *world) killEngine(ctx context.Context) error {
	for _, c := range w.clients {
		if box := c.box.Load(); box != nil {
			box.await(ctx, func(v view) bool { return v.last > 0 && !v.busy })
		}
	}
	w.result.EngineKills++
	if err := w.own.Kill(); err != nil {
		return err
	}
	w.pause(ctx, w.config.Window)
	if err := w.kill(); err != nil {
		return err
	}
	if err := w.own.Start(ctx); err != nil {
		return err
	}
	return w.start(ctx)
}

// look waits for rest and has everything checked.
func (w *world) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	w.judgeTree()
	return w.Checker.Rest(ctx)
}

// disturb kills the daemon once or more, and what else is to be killed, and leaves it serving and the engine whole.
func (w *world) disturb(ctx context.Context) error {
	if w.proxy != nil {
		if err := w.proxy.Use(w.faults()...); err != nil {
			return err
		}
	}
	w.pause(ctx, w.config.Window)
	if w.proxy != nil && w.random.Float64() < 0.3 {
		w.proxy.Cut(regexp.MustCompile("/events$"))
	}
	if w.random.Float64() < w.config.Primaries {
		w.killPrimary(ctx)
	}
	if err := w.kill(); err != nil {
		return err
	}
	for w.random.Float64() < 0.3 { // once more, while it recovers
		if err := w.Daemon.Launch(); err != nil {
			return err
		}
		w.pause(ctx, 100*time.Millisecond)
		if err := w.kill(); err != nil {
			return err
		}
	}
	if w.proxy != nil {
		if err := w.proxy.Use(); err != nil {
			return err
		}
	}
	return w.start(ctx)
}

// pause waits for a random part of most, or until ctx ends.
func (w *world) pause(ctx context.Context, most time.Duration) {
	_ = w.wait(ctx, time.Duration(w.random.Int64N(int64(most)+1)))
}

// kill kills the daemon, and looks into the log that it left.
func (w *world) kill() error {
	w.Daemon.Kill()
	w.result.Kills++
	return w.Checker.Log(w.Daemon.Database())
}

func (w *world) killPrimary(ctx context.Context) {
	c := w.clients[w.random.IntN(len(w.clients))]
	box := c.box.Load()
	if box == nil || box.current().state != agboxv1.SandboxState_SANDBOX_STATE_READY {
		return
	}
	w.record.Killed(box.id)
	if w.Engine.ContainerKill(ctx, "agbox-primary-"+box.id, "KILL") == nil {
		w.result.PrimaryKills++
	}
}

// faults are the ways in which the engine fails in one round.
func (w *world) faults() []proxy.Rule {
	path := func(text string) *regexp.Regexp { return regexp.MustCompile(text) }
	all := []proxy.Rule{
		{Phase: proxy.Before, Chance: 0.1, Fault: proxy.Delay(200 * time.Millisecond)},
		{Phase: proxy.After, Chance: 0.1, Fault: proxy.Delay(200 * time.Millisecond)},
		{Phase: proxy.Before, Chance: 0.05, Fault: proxy.Status(500, "chaos before")},
		{Phase: proxy.After, Chance: 0.05, Fault: proxy.Status(500, "chaos after")},
		{Phase: proxy.Before, Chance: 0.05, Fault: proxy.Drop()},
		{Phase: proxy.After, Chance: 0.05, Fault: proxy.Drop()},
		{Method: "GET", Path: path("/json$"), Phase: proxy.Body, Chance: 0.1, Fault: proxy.Truncate(20)},
		{Path: path("/events$"), Phase: proxy.Body, Chance: 0.3, Fault: proxy.Truncate(100)},
	}
	var rules []proxy.Rule
	for _, i := range w.random.Perm(len(all))[:2] {
		rules = append(rules, all[i])
	}
	return rules
}

// finish deletes every sandbox that is left, ends the daemon as a signal does, and looks a last time.
func (w *world) finish(ctx context.Context) error {
	var living sync.WaitGroup
	for _, c := range w.clients {
		living.Go(func() {
			if box := c.box.Load(); box != nil {
				c.operate(ctx, box, checker.Delete)
			}
		})
	}
	living.Wait()
	if err := w.look(ctx); err != nil {
		return err
	}
	if err := w.removeSnapshots(ctx); err != nil {
		return err
	}
	for range 2 { // what the engine had finished too late for one daemon, the next removes
		if err := w.look(ctx); err != nil {
			return err
		}
		if err := w.stop(ctx); err != nil {
			return err
		}
		if err := w.start(ctx); err != nil {
			return err
		}
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	if err := w.stop(ctx); err != nil {
		return err
	}
	return w.Checker.Vacated(ctx)
}

// stop ends the daemon as a signal does, and looks into the log that it left.
func (w *world) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.Daemon.Stop(ctx); err != nil {
		w.Checker.Report().Add(checker.Stuck, "agboxd", "on SIGTERM: "+err.Error())
	}
	return w.Checker.Log(w.Daemon.Database())
}
