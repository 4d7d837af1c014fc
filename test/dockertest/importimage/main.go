// Command importimage makes an image of a root file system through the Engine API, without a registry.
//
//	importimage -tag REF [-also REF] [-change INSTRUCTION]... ROOTFS.tar
//	importimage -tag REF -have
//
// With -have it makes nothing: it exits 0 when the engine holds REF already and 1 when it does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/agbox-dev/agbox/test/dockertest"
)

var errMissing = errors.New("image is missing")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var changes []string
	tag := flag.String("tag", "", "`reference` that the image gets")
	also := flag.String("also", "", "second `reference` for it")
	have := flag.Bool("have", false, "only tell whether the image exists")
	flag.Func("change", "Dockerfile `instruction` to apply, may be repeated", func(s string) error {
		changes = append(changes, s)
		return nil
	})
	flag.Parse()
	if *tag == "" || (flag.NArg() == 1) == *have {
		flag.Usage()
		os.Exit(2)
	}
	switch err := run(ctx, *tag, *also, changes, flag.Arg(0)); {
	case errors.Is(err, errMissing):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "importimage:", err)
		os.Exit(2)
	}
}

// run imports the file, or without one only looks.
func run(ctx context.Context, tag, also string, changes []string, file string) error {
	cli, err := dockertest.Connect(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	if file == "" {
		have, err := dockertest.HasImage(ctx, cli, tag)
		if err == nil && !have {
			err = errMissing
		}
		return err
	}
	rootfs, err := os.Open(file)
	if err != nil {
		return err
	}
	defer rootfs.Close()
	if err := dockertest.Import(ctx, cli, tag, rootfs, changes); err != nil || also == "" {
		return err
	}
	return cli.ImageTag(ctx, tag, also)
}
