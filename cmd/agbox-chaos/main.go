// Command agbox-chaos proves that agboxd loses nothing: random clients, a daemon that is killed over and over, and a
// checker that compares what clients were told with the log, the files and the engine. It prints what it found with
// its seed; what a run with violations has left stays for reading.
//
//	agbox-chaos -rounds 500 -seed 7 -sandboxes 8
//	agbox-chaos -faults                        Docker's API fails, too
//	agbox-chaos -panics 0.01                   actors panic more often
//	agbox-chaos -long 30m                      one command, three restarts
//	agbox-chaos -engine-root /var/tmp/engine   a private dockerd is started there, and killed, too
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/test/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agbox-chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	var config chaos.Config
	flags := flag.NewFlagSet("agbox-chaos", flag.ContinueOnError)
	flags.StringVar(&config.Agboxd, "agboxd", "", "the `daemon` to kill; one of this source is built if not named")
	flags.Uint64Var(&config.Seed, "seed", uint64(time.Now().Unix()), "what the clients do and when the daemon dies")
	flags.IntVar(&config.Rounds, "rounds", 500, "how often the daemon is killed")
	flags.IntVar(&config.Sandboxes, "sandboxes", 8, "how many clients there are, each with a sandbox")
	flags.DurationVar(&config.Window, "window", time.Second, "how long the daemon lives at most")
	flags.DurationVar(&config.Long, "long", 0, "instead of rounds, run one command for so long over three restarts")
	flags.BoolVar(&config.Faults, "faults", false, "have Docker's API fail, too")
	flags.Float64Var(&config.Panics, "panics", 0.002, "the part of writes to the log around which an actor panics")
	flags.Float64Var(&config.Primaries, "primaries", 0.1, "the part of rounds in which a container is killed, too")
	flags.StringVar(&config.EngineRoot, "engine-root", "", "a `directory` for a private dockerd that is killed, too")
	flags.Float64Var(&config.Engines, "engines", 0.1, "the part of rounds in which that is killed")
	flags.IntVar(&config.Warm, "warm", 0, "how many sandboxes the daemon makes ahead")
	verbose := flags.Bool("v", false, "tell of each round")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if config.Long > 0 {
		config.Sandboxes, config.Panics = 1, 0
	}
	if config.EngineRoot == "" {
		config.Engines = 0
	}
	if *verbose {
		config.Progress = out
	}
	var err error
	if config.Agboxd != "" {
		config.Agboxd, err = filepath.Abs(config.Agboxd)
	} else {
		config.Agboxd, err = chaos.Build()
	}
	if err != nil {
		return err
	}
	if config.Dir, err = os.MkdirTemp("", "agbox-chaos"); err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintf(out, "seed %d: everything lies in %s\n", config.Seed, config.Dir)
	result, err := chaos.Run(ctx, config)
	if err == nil {
		err = os.RemoveAll(config.Dir)
	} else {
		err = fmt.Errorf("%w; see %s", err, config.Dir)
	}
	return errors.Join(report(out, config, result, time.Since(began)), err)
}

func report(out io.Writer, config chaos.Config, result chaos.Result, took time.Duration) error {
	if result.Report == nil {
		return nil
	}
	fmt.Fprintf(out, "seed %d: agboxd killed %d times, containers %d times, dockerd %d times; actors panicked %d times\n",
		config.Seed, result.Kills, result.PrimaryKills, result.EngineKills, result.Panics)
	fmt.Fprintf(out, "%s, %.1f kills a minute\n", took.Round(time.Second), float64(result.Kills)/took.Minutes())
	fmt.Fprintf(out, "%d sandboxes took one that was made ahead\n", result.Warm)
	var served []string
	for _, what := range slices.Sorted(maps.Keys(result.Served)) {
		served = append(served, fmt.Sprintf("%s %d", what, result.Served[what]))
	}
	fmt.Fprintf(out, "accepted: %s\n", strings.Join(served, ", "))
	for name, count := range result.Faults {
		fmt.Fprintf(out, "engine fault %q: %d times\n", name, count)
	}
	return errors.Join(result.Print(out), result.Details(out))
}
