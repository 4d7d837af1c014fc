// Package measure measures agboxd beside what the same takes without it: each step of one in turn with the same step by the Engine
// API, or with a plain fork and exec, so that a noisy machine disturbs both alike. Each group of rows has a daemon of its own, on
// directories of its own, and leaves nothing behind.
package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/test/bench/figure"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// Counts say how much is measured.
type Counts struct {
	Lives  int   // sandboxes that are created, stopped and deleted one after the other
	Bursts []int // sandboxes that are created at once

	Execs  int   // one after the other
	Forks  int   // plain ones that an exec's cost is told in
	AtOnce []int // execs at once
	Rounds int   // of all that is not counted otherwise
	Output int   // MiB of a command's output

	Restarted int   // sandboxes that a daemon finds again after kill -9
	Logs      int   // sandboxes in a large database
	LogEvents int   // in each
	Replayed  int   // events of one sandbox that one subscriber reads
	Followers []int // subscribers of one sandbox
	Listed    int   // sandboxes in one list
	Idle      int   // sandboxes, with as many subscribers
	IdleFor   time.Duration

	First int // sandboxes in which a first command is waited for, one after the other and then at once
}

// Full is what make bench measures.
func Full() Counts {
	return Counts{
		Lives: 15, Bursts: []int{20, 100},
		Execs: 300, Forks: 300, AtOnce: []int{50, 500}, Rounds: 5, Output: 1024,
		Restarted: 20, Logs: 1000, LogEvents: 1000, Replayed: 90_000, Followers: []int{1, 100, 1000}, Listed: 10_000,
		Idle: 300, IdleFor: 20 * time.Second, First: 100,
	}
}

// Small is for a test that each row can be measured.
func Small() Counts {
	return Counts{
		Lives: 1, Bursts: []int{2},
		Execs: 3, Forks: 10, AtOnce: []int{5}, Rounds: 1, Output: 1,
		Restarted: 1, Logs: 2, LogEvents: 100, Replayed: 100, Followers: []int{1, 3}, Listed: 5,
		Idle: 1, IdleFor: 100 * time.Millisecond, First: 2,
	}
}

// group is rows that are measured together, on one daemon or several.
type group struct {
	name    string
	measure func(*Bench, context.Context) ([]figure.Row, error)
}

var groups = []group{
	{"life", (*Bench).lives},
	{"network", (*Bench).readyNetworks},
	{"warm", (*Bench).warm},
	{"burst", (*Bench).bursts},
	{"exec", (*Bench).execs},
	{"output", (*Bench).output},
	{"pause", (*Bench).pauses},
	{"restart", (*Bench).restarts},
	{"logs", (*Bench).logs},
	{"replay", (*Bench).replay},
	{"follow", (*Bench).followers},
	{"list", (*Bench).list},
	{"idle", (*Bench).idle},
}

// Groups are the names of the groups of rows. The key of a row begins with that of its group.
func Groups() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// Wanted tells whether the row with this key is measured when these groups are asked for; none are all.
func Wanted(names []string, key string) bool {
	name, _, _ := strings.Cut(key, "-")
	return len(names) == 0 || slices.Contains(names, name)
}

// Bench is an engine and the daemon under measurement.
type Bench struct {
	Counts
	// Progress is told what is measured next. It may be nil.
	Progress func(group string)

	engine *client.Client
	image  string
	path   string          // of the daemon's program
	knows  map[string]bool // configurations that were tried
	plain  plain
}

// New needs an engine, and the program of a daemon. Close must follow.
func New(ctx context.Context, daemon string, counts Counts) (*Bench, error) {
	engine, err := dockertest.Connect(ctx)
	if err != nil {
		return nil, err
	}
	image, err := dockertest.EnsureImage(ctx, engine, dockertest.Busybox)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return &Bench{Counts: counts, engine: engine, image: image, path: daemon, knows: map[string]bool{}, plain: plain{engine: engine, image: image}}, nil
}

// Close removes what measuring by the Engine API has left, after a failure.
func (b *Bench) Close() error {
	return errors.Join(b.plain.close(), b.engine.Close())
}

// Run measures the groups with these names, all without any.
func (b *Bench) Run(ctx context.Context, names []string) (*figure.Report, error) {
	for _, name := range names {
		if !slices.Contains(Groups(), name) {
			return nil, fmt.Errorf("there are no rows named %q: name some of %s", name, strings.Join(Groups(), ", "))
		}
	}
	machine, err := b.machine(ctx)
	if err != nil {
		return nil, err
	}
	report := &figure.Report{Taken: time.Now(), Machine: machine}
	for _, g := range groups {
		if !Wanted(names, g.name) {
			continue
		}
		if b.Progress != nil {
			b.Progress(g.name)
		}
		rows, err := g.measure(b, ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

// lap returns the time since clock and sets clock to now.
func lap(clock *time.Time) time.Duration {
	now := time.Now()
	took := now.Sub(*clock)
	*clock = now
	return took
}

// beside is a row of times in turn with those of something else.
func beside(key, name, than string, ours, side []time.Duration, promise figure.Promise) figure.Row {
	theirs := figure.Milliseconds(side)
	return figure.Row{Key: key, Name: name, Unit: "ms", Ours: figure.Milliseconds(ours), Than: than, Side: &theirs, Promise: promise}
}
