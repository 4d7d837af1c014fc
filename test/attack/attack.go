package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// attack is one thing that somebody may try. Each play of it has a sandbox of its own, which is deleted afterwards.
type attack struct {
	// point is where it is promised that this does no harm.
	point, name string
	limits      sdk.Limits
	// prepare may change the spec and the shared directory; nil: nothing to do.
	prepare func(b *box, spec *sdk.Spec) error
	// play returns an error when the attack was of use: something does not hold for its own sandbox that must hold.
	// Victims look to themselves.
	play func(ctx context.Context, b *box) error

	mu      sync.Mutex
	played  int
	longest time.Duration
	wrong   []error
}

// small are the limits of attackers: nobody is to suffer from this program.
var small = sdk.Limits{MemoryLimit: 64 << 20, PidsLimit: 128, CPULimit: 1}

// attacks are all, in the order of the table.
func attacks() []*attack {
	var all []*attack
	for _, some := range [][]*attack{guestAttacks, processAttacks, linkAttacks, streamAttacks, fileAttacks, engineAttacks} {
		all = append(all, some...)
	}
	return all
}

// once plays it in a new sandbox.
func (k *attack) once(ctx context.Context, a *arena) error {
	defer a.begin(k.name)()
	began := time.Now()
	err := func() (err error) {
		spec := sdk.Spec{Limits: k.limits}
		if spec.PidsLimit == 0 {
			spec.Limits = small
		}
		b, err := a.prepared("attacker", spec, k.prepare)
		if err == nil {
			err = b.start(ctx)
		}
		if err != nil {
			return fmt.Errorf("the attacker's sandbox: %w", err)
		}
		defer func() {
			if left := b.remove(ctx); err == nil {
				err = left
			}
		}()
		return k.play(ctx, b)
	}()
	if ctx.Err() != nil {
		return nil
	}
	k.mu.Lock()
	k.played++
	k.longest = max(k.longest, time.Since(began))
	if err != nil {
		k.wrong = append(k.wrong, err)
	}
	k.mu.Unlock()
	if err != nil {
		a.problem("%s (%s): %v", k.name, k.point, err)
	}
	return err
}

// storm plays all attacks, several at once, again and again in another order, until the time is over and each was played.
func (a *arena) storm(ctx context.Context, all []*attack) {
	queue := make(chan *attack)
	var players sync.WaitGroup
	for range a.config.players {
		players.Go(func() {
			for k := range queue {
				_ = k.once(ctx, a)
			}
		})
	}
	over := time.Now().Add(a.config.duration)
rounds:
	for first := true; first || time.Now().Before(over); first = false {
		for _, i := range rand.Perm(len(all)) {
			if !first && time.Now().After(over) {
				break rounds
			}
			select {
			case queue <- all[i]:
			case <-ctx.Done():
				break rounds
			}
		}
	}
	close(queue)
	players.Wait()
}

func table(out io.Writer, all []*attack) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "point\tattack\tplayed\tlongest\toutcome")
	for _, k := range all {
		k.mu.Lock()
		outcome := "withstood"
		if len(k.wrong) > 0 {
			outcome = fmt.Sprintf("SUCCEEDED %d times: %.200v", len(k.wrong), k.wrong[0])
		} else if k.played == 0 {
			outcome = "not played"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%v\t%s\n", k.point, k.name, k.played, k.longest.Round(10*time.Millisecond), outcome)
		k.mu.Unlock()
	}
	w.Flush()
}
