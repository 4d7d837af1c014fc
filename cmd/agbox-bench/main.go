// Command agbox-bench measures agboxd beside the plain Engine API, each step of one in turn with the same step of
// the other, so that a noisy machine disturbs both alike. It starts the bin/agboxd of this tree on directories of its
// own and needs an engine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 15, "sandboxes to create, stop and delete")
	execs := flag.Int("execs", 200, "execs to run one after the other")
	daemon := flag.String("agboxd", "bin/agboxd", "the `daemon` to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *daemon, *rounds, *execs); err != nil {
		fmt.Fprintln(os.Stderr, "agbox-bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, daemon string, rounds, execs int) error {
	b, err := newBench(ctx, daemon)
	if err != nil {
		return err
	}
	defer b.close()
	var rows []row
	for _, measure := range []func(context.Context) ([]row, error){
		func(ctx context.Context) ([]row, error) { return b.lives(ctx, rounds) },
		func(ctx context.Context) ([]row, error) { return b.execs(ctx, execs) },
		func(ctx context.Context) ([]row, error) { return b.pauses(ctx, rounds) },
		b.recovery,
		b.million,
	} {
		measured, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, measured...)
	}
	return report(rows)
}

// row is one step, measured several times on both sides. docker is empty
// where an engine has nothing like it.
type row struct {
	step         string
	ours, docker []time.Duration
	text         string // instead of ours, where it is no time
	bound        string
}

func report(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "step (median, min..max in ms)\tagboxd\tengine\tratio\tpromise\t")
	for _, r := range rows {
		ours, docker, ratio := r.text, "-", "-"
		if ours == "" {
			ours = spread(r.ours)
		}
		if len(r.docker) > 0 {
			docker, ratio = spread(r.docker), fmt.Sprintf("%.3f", float64(median(r.ours))/float64(median(r.docker)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", r.step, ours, docker, ratio, r.bound)
	}
	return w.Flush()
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func spread(d []time.Duration) string {
	return fmt.Sprintf("%s (%s..%s)", ms(median(d)), ms(slices.Min(d)), ms(slices.Max(d)))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }
