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
	Machine      figure.Machine
	Serial, Once []time.Duration // sorted
}

// First measures that, one sandbox after the other, each deleted before the next, and then as many at once.
func (b *Bench) First(ctx context.Context) (first *First, err error) {
	machine, err := b.machine(ctx)
	if err != nil {
		return nil, err
	}
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	first = &First{Machine: machine}
	for range b.Counts.First {
		took, id, err := d.firstCommand(ctx)
		if err != nil {
			return nil, err
		}
		first.Serial = append(first.Serial, took)
		if _, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
			return nil, err
		}
		if _, err := d.until(ctx, id, 0, agboxv1.EventType_SANDBOX_DELETED); err != nil {
			return nil, err
		}
	}
	first.Once = make([]time.Duration, b.Counts.First)
	errs := make([]error, b.Counts.First)
	var group sync.WaitGroup
	for i := range b.Counts.First {
		group.Go(func() { first.Once[i], _, errs[i] = d.firstCommand(ctx) })
	}
	group.Wait()
	slices.Sort(first.Serial)
	slices.Sort(first.Once)
	return first, errors.Join(errs...)
}

// firstCommand returns how long it took from the call that creates a sandbox until echo had ended in it.
func (d *daemon) firstCommand(ctx context.Context) (took time.Duration, id string, err error) {
	clock := time.Now()
	id, ready, err := d.create(ctx, d.spec())
	if err != nil {
		return 0, id, err
	}
	if _, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"echo", "hello"}}); err != nil {
		return 0, id, err
	}
	_, err = d.until(ctx, id, ready, agboxv1.EventType_EXEC_FINISHED)
	return time.Since(clock), id, err
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
	fmt.Fprintf(&b, "%s\n\ncreate → end of the first echo, in ms%16s%10s%10s\n", f.Machine, "median", "p95", "p99")
	for _, line := range []struct {
		name  string
		times []time.Duration
	}{{"agboxd, %d one after the other", f.Serial}, {"agboxd, %d at once", f.Once}} {
		fmt.Fprintf(&b, "%-36s", fmt.Sprintf(line.name, len(line.times)))
		for i, p := range []float64{50, 95, 99} {
			fmt.Fprintf(&b, "%*s", []int{17, 10, 10}[i], figure.Number(figure.MS(figure.Percentile(line.times, p))))
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
