package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// First is how long it takes from the call that creates a sandbox to the end of its first command, as others publish it.
type First struct {
	Machine figure.Machine
	Series  []Series
}

// Series are such times, sorted.
type Series struct {
	Name  string
	Times []time.Duration
}

// First measures that, one sandbox after the other, each deleted before the next, and then as many at once: with as many ready in
// the pool where there is one, and with nothing ready.
func (b *Bench) First(ctx context.Context) (*First, error) {
	machine, err := b.machine(ctx)
	if err != nil {
		return nil, err
	}
	first := &First{Machine: machine}
	warm, err := b.warmDaemon(ctx, b.Counts.First)
	if err != nil {
		return nil, err
	}
	if warm != nil {
		if err := b.firsts(ctx, first, warm, "warm", warm.poolReady); err != nil {
			return nil, err
		}
	}
	config, err := b.nothingReady(ctx)
	if err != nil {
		return nil, err
	}
	cold, err := b.daemon(ctx, config)
	if err != nil {
		return nil, err
	}
	return first, b.firsts(ctx, first, cold, "nothing ready", func(context.Context) error { return nil })
}

// firsts closes the daemon.
func (b *Bench) firsts(ctx context.Context, first *First, d *daemon, how string, ready func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	if err := ready(ctx); err != nil {
		return err
	}
	n := b.Counts.First
	serial, once, errs := make([]time.Duration, n), make([]time.Duration, n), make([]error, n)
	for i := range serial {
		var id string
		if _, serial[i], id, err = d.firstCommand(ctx); err != nil {
			return err
		}
		if err := d.delete(ctx, id); err != nil {
			return err
		}
	}
	if err := ready(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	for i := range once {
		group.Go(func() { _, once[i], _, errs[i] = d.firstCommand(ctx) })
	}
	group.Wait()
	slices.Sort(serial)
	slices.Sort(once)
	first.Series = append(first.Series, Series{fmt.Sprintf("%s, %d one after the other", how, n), serial}, Series{fmt.Sprintf("%s, %d at once", how, n), once})
	return errors.Join(errs...)
}

// firstCommand returns how long it took from the call that creates a sandbox until that was READY, and until echo had ended in it.
func (d *daemon) firstCommand(ctx context.Context) (ready, ended time.Duration, id string, err error) {
	clock := time.Now()
	id, at, err := d.create(ctx, d.spec())
	if err != nil {
		return 0, 0, id, err
	}
	ready = time.Since(clock)
	if _, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"echo", "hello"}}); err != nil {
		return 0, 0, id, err
	}
	_, err = d.until(ctx, id, at, agboxv1.EventType_EXEC_FINISHED)
	return ready, time.Since(clock), id, err
}

// published are medians in milliseconds, as they were told of other services, one after the other and 100 at once; 0: not told. The way to a service
// is in most of theirs, and in none of ours.
var published = []struct {
	name         string
	serial, once float64
}{
	{"declaw", 42, 351}, {"Daytona", 186, 367}, {"E2B", 491, 822}, {"Blaxel", 525, 0}, {"Vercel", 671, 832}, {"Modal", 1723, 2261},
}

// Table is for a terminal, and beside the others.
func (f *First) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\ncreate → end of the first echo, in ms%26s%10s%10s\n", f.Machine, "median", "p95", "p99")
	for _, series := range f.Series {
		fmt.Fprintf(&b, "%-46s", "agboxd, "+series.Name)
		for i, p := range []float64{50, 95, 99} {
			fmt.Fprintf(&b, "%*s", []int{17, 10, 10}[i], figure.Number(figure.MS(figure.Percentile(series.Times, p))))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nPublished medians of services\n")
	for _, other := range published {
		once := "–"
		if other.once > 0 {
			once = figure.Number(other.once)
		}
		fmt.Fprintf(&b, "%-20s one after the other %8s   100 at once %8s\n", other.name, figure.Number(other.serial), once)
	}
	return b.String()
}
