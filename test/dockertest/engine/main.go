// Command engine asks the Docker engine what the project's scripts need to know; it needs no docker client.
//
//	engine                 print where the engine is and its version; exit 1 when none answers
//	engine left SANDBOX    list what is left of a sandbox; exit 1 when that is not nothing
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/agbox-dev/agbox/test/dockertest"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	cli, err := dockertest.Connect(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	switch {
	case len(args) == 0:
		v, err := cli.ServerVersion(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s (Docker %s, API %s)\n", cli.DaemonHost(), v.Version, v.APIVersion)
		return nil
	case len(args) == 2 && args[0] == "left":
		objects, err := dockertest.Objects(ctx, cli, args[1])
		if err != nil {
			return err
		}
		for _, o := range objects {
			fmt.Println(o)
		}
		if len(objects) > 0 {
			return fmt.Errorf("%d objects of sandbox %s are left", len(objects), args[1])
		}
		fmt.Println("0 containers, 0 networks")
		return nil
	}
	return fmt.Errorf("usage: engine [left SANDBOX]")
}
