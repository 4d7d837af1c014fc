package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

type createFlags struct {
	image, id, config string
	mounts            mounts
	copies            copies
	env, labels       pairs
	tools             []string
	idleTTL           time.Duration
	idleSet           bool
	wait, noWait      bool
}

func (a *app) createCommand() *cobra.Command {
	f := createFlags{env: pairs{inherit: true}}
	cmd := &cobra.Command{
		Use:   "create [IMAGE] [flags]",
		Short: "Create a sandbox and print its id",
		Long: `Create a sandbox, wait until it is ready, and print its id on stdout. The id is printed
also when the sandbox was accepted and failed later: inspect or delete it.`,
		Example: `  agbox sandbox create debian:12 --mount .:/workspace:rw --label job=42
  agbox sandbox create --config sandbox.yaml --env TOKEN`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("want one image, got %d arguments", len(args))
			case len(args) == 1 && f.image != "":
				return errors.New("the image is given twice")
			case len(args) == 1:
				f.image = args[0]
			case f.image == "" && f.config == "":
				return errors.New("name an IMAGE, or a --config that does")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "", "image to run")
	flags.StringVar(&f.id, "id", "", "id of the sandbox, never used before (default: a UUID)")
	flags.Var(&f.mounts, "mount", "mount a host file or directory, read-only without :rw")
	flags.Var(&f.copies, "copy", "copy a host file or directory in")
	flags.Var(&f.env, "env", "environment variable; KEY alone takes the value from here")
	flags.Var(&f.labels, "label", "label")
	flags.StringArrayVar(&f.tools, "tool", nil, "builtin tool: claude, codex, git, uv, npm, apt")
	flags.DurationVar(&f.idleTTL, "idle-ttl", 0, "stop when idle for so long, 0: never (default: agboxd's)")
	flags.StringVar(&f.config, "config", "", "YAML file with the spec, - for stdin; flags override it")
	flags.BoolVar(&f.wait, "wait", true, "wait until the sandbox is ready")
	flags.BoolVar(&f.noWait, "no-wait", false, "return when the sandbox is accepted")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
		f.idleSet = flags.Changed("idle-ttl")
		return a.create(ctx, c, f)
	})
	return cmd
}

func (f createFlags) spec() sdk.Spec {
	spec := sdk.Spec{
		Image: f.image, Mounts: f.mounts, Copies: f.copies, BuiltinTools: f.tools,
		Labels: f.labels.values, Env: f.env.values, IdleTTL: f.idleTTL,
	}
	if f.idleSet && f.idleTTL == 0 {
		spec.IdleTTL = sdk.NeverIdle
	}
	return spec
}

func (a *app) create(ctx context.Context, c *sdk.Client, f createFlags) error {
	opts := []sdk.CreateOption{sdk.WithSandboxID(f.id), sdk.WithWait(f.wait && !f.noWait)}
	if f.config != "" {
		config, err := a.readConfig(f.config)
		if err != nil {
			return fmt.Errorf("cannot read the config: %w", err)
		}
		opts = append(opts, sdk.WithConfigYAML(config))
	}
	if a.onTerminal() {
		opts = append(opts, sdk.WithProgress(a.progress))
	}
	box, err := c.CreateSandbox(ctx, f.spec(), opts...)
	if box.ID == "" {
		return err
	}
	if ctx.Err() != nil {
		a.say("sandbox %s is still being created", box.ID)
	}
	if err == nil && a.json {
		resp, err := c.Raw().GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: box.ID})
		if err != nil {
			return err
		}
		return a.printJSON(&agboxv1.CreateSandboxResponse{Sandbox: resp.GetSandbox()})
	}
	if !a.json {
		fmt.Fprintln(a.out, box.ID)
	}
	return err
}

func (a *app) readConfig(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(path)
}

// progress tells a waiting person what goes on.
func (a *app) progress(e sdk.Event) {
	switch e.Type {
	case sdk.EventSandboxPreparing:
		a.say("preparing: %s", e.Phase)
	case sdk.EventServiceReady:
		a.say("service %s is ready", e.Service)
	case sdk.EventServiceFailed:
		a.say("service %s failed: %s", e.Service, e.ErrorMessage)
	}
}

func (a *app) onTerminal() bool {
	file, ok := a.err.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
