// Command attack plays everything that a sandbox, its users and an unlucky operator were ever able to do to agboxd, again and
// again, against the built daemon, with other sandboxes at work beside it. None of those may notice anything, the daemon's
// memory stays bounded, and at the end nothing is left.
//
//	attack -for 2m              play for so long; each attack at least once
//	attack -only 'terminal'     only those with this in their name
//
// It prints each attack, how often it was played, and whether it was of use. It exits with 1 if anything was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/chaos"
)

// config is what a run is.
type config struct {
	agboxd, dir      string
	duration         time.Duration
	victims, players int
	only             string
	out              io.Writer
}

var listAll = sdk.Filter{}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := config{out: os.Stdout}
	flag.StringVar(&c.agboxd, "agboxd", "", "the `daemon` to attack; the one that make build has made if not named")
	flag.DurationVar(&c.duration, "for", 2*time.Minute, "how long attacks are played, each at least once")
	flag.IntVar(&c.victims, "victims", 3, "sandboxes at work beside them")
	flag.IntVar(&c.players, "players", 3, "attacks at once")
	flag.StringVar(&c.only, "only", "", "play those only whose name `matches`")
	flag.Parse()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

// errProblems: something was not as it must be. It has been printed.
var errProblems = errors.New("something was not as it must be")

func run(ctx context.Context, c config) (err error) {
	if c.agboxd == "" {
		c.agboxd, err = chaos.Built()
	} else {
		c.agboxd, err = filepath.Abs(c.agboxd)
	}
	if err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "agbox-attack"); err != nil {
		return err
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // sandboxes mount what is in it
		return err
	}
	fmt.Fprintf(c.out, "everything lies in %s\n", c.dir)
	defer func() {
		if err == nil {
			err = os.RemoveAll(c.dir)
		} else {
			err = fmt.Errorf("%w; see %s", err, c.dir)
		}
	}()
	a, err := newArena(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if err := a.play(ctx); err != nil {
		return err
	}
	if len(a.problems) > 0 {
		fmt.Fprintf(c.out, "\n%d problems:\n", len(a.problems))
		for _, problem := range a.problems {
			fmt.Fprintln(c.out, " ", problem)
		}
		return errProblems
	}
	return nil
}

func (a *arena) play(ctx context.Context) error {
	all := attacks()
	only, err := regexp.Compile(a.config.only)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(k *attack) bool { return !only.MatchString(k.name) })

	if err := a.Daemon.Start(ctx); err != nil {
		return err
	}
	goroutinesBefore, err := a.goroutines(ctx)
	if err != nil {
		return err
	}
	if err := a.Daemon.Start(ctx); err != nil {
		return err
	}
	before, err := usage(a.Daemon.Pid())
	if err != nil {
		return err
	}

	sampling, sampled := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { a.sample(sampling) })
	defer func() { sampled(); sampler.Wait() }()

	var victims []*victim
	for n := range a.config.victims {
		v, err := a.newVictim(ctx, n+1)
		if err != nil {
			return err
		}
		victims = append(victims, v)
	}
	quiet := make(chan struct{})
	for _, v := range victims {
		v.live(ctx, quiet)
	}
	began := time.Now()
	a.storm(ctx, all)
	took := time.Since(began)
	close(quiet)
	for _, v := range victims {
		v.work.Wait()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	storm, err := usage(a.Daemon.Pid())
	if err != nil {
		return err
	}
	all = append(all, a.operatorFaults(ctx, victims)...)
	after, goroutinesAfter, err := a.clear(ctx, victims, before, goroutinesBefore)

	fmt.Fprintln(a.config.out)
	table(a.config.out, all)
	fmt.Fprintf(a.config.out, "\n%v of attacks, %d sandboxes in all\n", took.Round(time.Second), len(a.ids))
	for _, v := range victims {
		fmt.Fprintf(a.config.out, "%s: %d pieces of work, the longest %v\n", v.id, v.done.Load(), time.Duration(v.longest.Load()).Round(time.Millisecond))
	}
	fmt.Fprintf(a.config.out, "the daemon: %v at the beginning, %v after the storm, at most %.1f MB of %.0f; %v at the end\n",
		before, storm, float64(storm.highest)/1e6, float64(mostMemory)/1e6, after)
	fmt.Fprintf(a.config.out, "goroutines: %d at the beginning, %d at the end\n", goroutinesBefore, goroutinesAfter)
	return err
}
