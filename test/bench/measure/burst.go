package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/test/bench/figure"
)

// engineBest is how many networks and containers Docker makes fastest at a time: above about two for each core only each one
// takes longer.
const engineBest = 4

// bursts creates sandboxes at once, with no warm ones, and as many containers with networks by hand, as many at a time as
// is best for Docker.
func (b *Bench) bursts(ctx context.Context) (_ []figure.Row, err error) {
	config, err := b.pool(ctx, noneRecent)
	if err != nil {
		return nil, err
	}
	d, err := b.daemon(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	var rows []figure.Row
	for _, n := range b.Bursts {
		ours, err := d.burst(ctx, n)
		if err != nil {
			return nil, err
		}
		if err := d.deleteAll(ctx); err != nil {
			return nil, err
		}
		took, names, err := b.plain.burst(ctx, n, engineBest)
		for _, name := range names {
			err = errors.Join(err, b.plain.remove(ctx, name))
		}
		if err != nil {
			return nil, err
		}
		promise := figure.Promise{}
		if n == 100 {
			promise.Ratio = 0.85
		}
		rows = append(rows, beside(fmt.Sprintf("burst-%d", n), fmt.Sprintf("%d creates at once → all READY, cold", n),
			fmt.Sprintf("by the Engine API, %d at a time", engineBest), []time.Duration{ours}, []time.Duration{took}, promise))
	}
	return rows, nil
}

// burst returns how long it took until all sandboxes were READY.
func (d *daemon) burst(ctx context.Context, n int) (time.Duration, error) {
	errs := make([]error, n)
	var group sync.WaitGroup
	clock := time.Now()
	for i := range n {
		group.Go(func() { _, _, errs[i] = d.create(ctx, d.spec()) })
	}
	group.Wait()
	return time.Since(clock), errors.Join(errs...)
}
