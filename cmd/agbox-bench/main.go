// Command agbox-bench measures agboxd beside the plain Engine API and plain forks. It starts the bin/agboxd of this tree on
// directories of its own and needs an engine.
//
//	agbox-bench [-run NAME,NAME] [-json FILE] [-page FILE -svg FILE] [-keep FILE | -check FILE]
//	agbox-bench -tti
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/test/bench/figure"
	"github.com/agbox-dev/agbox/test/bench/measure"
)

type options struct {
	daemon, version       string
	names                 []string
	first, small          bool
	json, page, svg, keep string
	check                 string
}

func main() {
	var o options
	names := flag.String("run", "", "measure only the rows with these `names`, of "+strings.Join(measure.Groups(), ", "))
	flag.BoolVar(&o.first, "tti", false, "measure what others publish instead: from the call that creates a sandbox to the end of its first echo")
	flag.BoolVar(&o.small, "small", false, "measure little of each, to see that it can be measured")
	flag.StringVar(&o.json, "json", "", "write the figures to this `file`, for programs; - is the standard output")
	flag.StringVar(&o.page, "page", "", "put the figures into this Markdown `file`")
	flag.StringVar(&o.svg, "svg", "", "draw them into this `file`, which the page shows")
	flag.StringVar(&o.keep, "keep", "", "write the ratios into this `file`, those of rows that were not measured stay")
	flag.StringVar(&o.check, "check", "", "fail when a ratio is worse by a quarter than in this `file`")
	flag.StringVar(&o.daemon, "agboxd", "bin/agboxd", "the `daemon` to measure")
	flag.StringVar(&o.version, "version", "dev", "what to call it")
	flag.Parse()
	if *names != "" {
		o.names = strings.Split(*names, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "agbox-bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	counts := measure.Full()
	if o.small {
		counts = measure.Small()
	}
	b, err := measure.New(ctx, o.daemon, counts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if o.first {
		first, err := b.First(ctx)
		if err != nil {
			return err
		}
		fmt.Print(first.Table())
		return nil
	}
	b.Progress = func(group string) { fmt.Fprintln(os.Stderr, "measuring", group) }
	report, err := b.Run(ctx, o.names)
	if err != nil {
		return err
	}
	report.Version = o.version
	return tell(report, o)
}

func tell(report *figure.Report, o options) error {
	data, err := report.JSON()
	if err != nil {
		return err
	}
	switch o.json {
	case "":
		fmt.Print(report.Table())
	case "-":
		os.Stdout.Write(data)
	default:
		fmt.Print(report.Table())
		if err := os.WriteFile(o.json, data, 0o644); err != nil {
			return err
		}
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, []byte(report.Picture()), 0o644); err != nil {
			return err
		}
	}
	if o.page != "" {
		if err := writePage(report, o); err != nil {
			return err
		}
	}
	return compare(report, o)
}

func writePage(report *figure.Report, o options) error {
	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}
	picture := ""
	if o.svg != "" {
		if picture, err = filepath.Rel(filepath.Dir(o.page), o.svg); err != nil {
			return err
		}
	}
	text, err := report.Page(string(page), picture)
	if err != nil {
		return fmt.Errorf("%s: %w", o.page, err)
	}
	return os.WriteFile(o.page, []byte(text), 0o644)
}

// compare keeps the ratios, or compares them with those that were kept.
func compare(report *figure.Report, o options) error {
	read := func(path string) (figure.Kept, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return figure.Kept{}, err
		}
		return figure.ParseKept(data)
	}
	if o.keep != "" {
		kept, err := read(o.keep)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		kept.Keep(report)
		if err := os.WriteFile(o.keep, kept.Encode(), 0o644); err != nil {
			return err
		}
	}
	if o.check == "" {
		return nil
	}
	kept, err := read(o.check)
	if err != nil {
		return err
	}
	if worse := kept.Check(report, func(key string) bool { return measure.Wanted(o.names, key) }); len(worse) > 0 {
		return fmt.Errorf("slower than it was:\n  %s", strings.Join(worse, "\n  "))
	}
	return nil
}
