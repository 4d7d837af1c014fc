package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/bench/figure"
)

// runner runs true in one sandbox.
type runner struct {
	*daemon
	id     string
	stream *raw.Stream // from READY on
	guest  int         // pid of PID 1 of the sandbox, by the host's numbers
}

func (b *Bench) runner(ctx context.Context, d *daemon) (*runner, error) {
	spec := d.unconnected()
	spec.Pool = "never" // one that was made ahead has its usual name a moment later
	id, ready, err := d.create(ctx, spec)
	if err != nil {
		return nil, err
	}
	found, err := b.engine.ContainerInspect(ctx, containerOf(id))
	if err != nil {
		return nil, err
	}
	stream, err := d.follow(ctx, id, ready)
	return &runner{d, id, stream, found.State.Pid}, err
}

func containerOf(id string) string { return "agbox-primary-" + id }

// atOnce starts n commands and returns once the end of all was told.
func (r *runner) atOnce(ctx context.Context, n int) (time.Duration, error) {
	clock := time.Now()
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := r.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: r.id, Command: []string{"true"}})
			errs <- err
		}()
	}
	var failed error
	for range n {
		failed = errors.Join(failed, <-errs)
	}
	for range n {
		if failed == nil {
			_, failed = told(r.stream, agboxv1.EventType_EXEC_FINISHED)
		}
	}
	return time.Since(clock), failed
}

// dockersOwn are enough execs by Docker to know how long one takes, which is 50 ms and more.
const dockersOwn = 20

// execs runs true one after the other and many at once, in turn with Docker's own exec in the same container. What that
// costs the processor is told in plain forks.
func (b *Bench) execs(ctx context.Context) (_ []figure.Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r, err := b.runner(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.stream.Close()
	if _, err := r.atOnce(ctx, 20); err != nil { // to warm up
		return nil, err
	}
	one, err := b.serialExecs(ctx, r)
	if err != nil {
		return nil, err
	}
	rows := []figure.Row{one}
	for _, n := range b.AtOnce {
		many, err := b.parallelExecs(ctx, r, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, many)
	}
	for _, n := range append([]int{1}, b.AtOnce...) {
		cpu, err := b.execCost(ctx, r, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, cpu)
	}
	return rows, nil
}

func (b *Bench) serialExecs(ctx context.Context, r *runner) (figure.Row, error) {
	var ours, side []time.Duration
	for i := range b.Execs {
		if i%max(b.Execs/dockersOwn, 1) == 0 {
			clock := time.Now()
			if _, err := b.plain.exec(ctx, containerOf(r.id), "true"); err != nil {
				return figure.Row{}, err
			}
			side = append(side, lap(&clock))
		}
		took, err := r.atOnce(ctx, 1)
		if err != nil {
			return figure.Row{}, err
		}
		ours = append(ours, took)
	}
	return beside("exec-serial", "exec true → FINISHED", "Docker's exec", ours, side, figure.Promise{Ratio: 0.05}), nil
}

func (b *Bench) parallelExecs(ctx context.Context, r *runner, n int) (figure.Row, error) {
	var ours, side []time.Duration
	for i := range b.Rounds {
		took, err := r.atOnce(ctx, n)
		if err != nil {
			return figure.Row{}, err
		}
		ours = append(ours, took)
		if n > dockerMost || i > 1 { // it takes seconds
			continue
		}
		errs := make([]error, n)
		clock := time.Now()
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() { _, errs[i] = b.plain.exec(ctx, containerOf(r.id), "true") })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return figure.Row{}, err
		}
		side = append(side, lap(&clock))
	}
	row := beside(fmt.Sprintf("exec-%d", n), fmt.Sprintf("%d execs at once → all FINISHED", n), "Docker's exec, as many at once", ours, side, figure.Promise{})
	switch n {
	case 50:
		row.Promise.AtMost = 60
	case 500:
		row.Promise.AtMost = 400
	}
	if len(side) == 0 {
		row.Than, row.Side = "", nil
	}
	return row, nil
}

// dockerMost is how many execs at once Docker is asked for: 500 keep it busy for a minute, and some fail.
const dockerMost = 100

// execCost runs commands n at once and tells what one of them takes of the processor: the daemon, PID 1 of the sandbox, and the command.
func (b *Bench) execCost(ctx context.Context, r *runner, n int) (figure.Row, error) {
	var ours, side []float64
	var switches, guests float64
	for range b.Rounds {
		before, err := forks(b.Forks)
		if err != nil {
			return figure.Row{}, err
		}
		daemon, err := costOf(r.pid())
		if err != nil {
			return figure.Row{}, err
		}
		guest, err := costOf(r.guest)
		if err != nil {
			return figure.Row{}, err
		}
		ran := 0
		for ; ran < max(b.Execs, n); ran += n {
			if _, err := r.atOnce(ctx, n); err != nil {
				return figure.Row{}, err
			}
		}
		daemonNow, err := costOf(r.pid())
		if err != nil {
			return figure.Row{}, err
		}
		guestNow, err := costOf(r.guest)
		if err != nil {
			return figure.Row{}, err
		}
		after, err := forks(b.Forks)
		if err != nil {
			return figure.Row{}, err
		}
		cpu := daemonNow.cpu - daemon.cpu + guestNow.cpu - guest.cpu
		ours = append(ours, float64(cpu.Microseconds())/float64(ran))
		side = append(side, float64((before+after).Microseconds())/2)
		switches += float64(daemonNow.switches-daemon.switches) / float64(ran) / float64(b.Rounds)
		guests += float64(guestNow.switches-guest.switches) / float64(ran) / float64(b.Rounds)
	}
	name, promise := fmt.Sprintf("CPU of an exec, %d at once", n), figure.Promise{Ratio: 3}
	if n == 1 {
		name, promise = "CPU of an exec, one after the other", figure.Promise{}
	}
	theirs := figure.Numbers(side)
	return figure.Row{
		Key: fmt.Sprintf("exec-cpu-%d", n), Name: name, Unit: "µs", Ours: figure.Numbers(ours),
		Than: "a plain fork and exec", Side: &theirs, Promise: promise,
		Note: fmt.Sprintf("voluntary context switches of the daemon %.1f, of PID 1 %.1f", switches, guests),
	}, nil
}
