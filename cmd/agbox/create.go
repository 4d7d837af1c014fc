package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

type createFlags struct {
	spec        sdk.Spec
	image       string // --image
	id, config  string
	snapshot    string
	env, labels value.Pairs
	network     string
	private     bool
	allow       value.Destinations
	keep, hold  bool
	lease       sdk.Lease
	restart     sdk.RestartOnFailure
	noWait      bool
}

func (a *app) createCommand() *cobra.Command {
	f := createFlags{env: value.Pairs{Inherit: true}}
	cmd := &cobra.Command{
		Use:   "create [IMAGE] [flags] [-- COMMAND [ARG...]]",
		Short: "Create a sandbox and print its id",
		Long: `Create a sandbox, wait until it is ready, and print its id on stdout. The id is printed
also when the sandbox was accepted and failed later: inspect or delete it.

A COMMAND becomes the sandbox's main process; without one the sandbox just stays up.`,
		Example: `  agbox sandbox create debian:12 --mount .:/workspace:rw --label job=42
  agbox sandbox create --config sandbox.yaml --env TOKEN
  agbox sandbox create my-app --memory 1g -p 8080:80 --allow 192.0.2.0/24:443 -- serve --verbose`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "", "image to run")
	flags.StringVar((*string)(&f.spec.PullPolicy), "pull", "", "when to pull the image: missing, always, never (default: missing)")
	flags.StringVar(&f.id, "id", "", "id of the sandbox, never used before (default: a UUID)")
	flags.Var((*value.Mounts)(&f.spec.Mounts), "mount", "mount a host file or directory, read-only without :rw or :cow (writes stay in the sandbox)")
	flags.Var((*value.Copies)(&f.spec.Copies), "copy", "copy a host file or directory in, for OWNER (default: as whom a command would run)")
	flags.Var((*value.Tmpfs)(&f.spec.Tmpfs), "tmpfs", "directory in memory, empty at each start")
	flags.Var(&f.env, "env", "environment variable; KEY alone takes the value from here")
	flags.Var(&f.labels, "label", "label")
	flags.StringArrayVar(&f.spec.BuiltinTools, "tool", nil, "builtin tool: claude, codex, git, uv, npm, apt; NAME:rw writes to this host's files of it")
	flags.DurationVar(&f.spec.IdleTTL, "idle-ttl", 0, "end when idle for so long, 0: never (default: agboxd's)")
	flags.StringVar(&f.spec.OnIdle, "on-idle", "", "what happens after --idle-ttl: stop (default), pause or delete")
	flags.StringVar((*string)(&f.spec.Wake), "wake", "", "what it goes on for when it is paused or stopped: traffic, a connection to one of its ports")
	flags.DurationVar(&f.spec.MaxDuration, "max-duration", 0, "how long it may exist, 0: for ever")
	flags.StringVar(&f.spec.OnExpiry, "on-expiry", "", "what happens after --max-duration: delete (default), stop or pause")
	flags.BoolVar(&f.spec.Lazy, "lazy", false, "make it at its first use")
	flags.BoolVar(&f.hold, "hold", false, "hold it until this command ends, with which it ends (--lease: how much later)")
	flags.DurationVar(&f.lease.Grace, "lease", 0, "end it when nobody holds it (agbox sandbox hold) for so long")
	flags.StringVar(&f.lease.OnEnd, "on-lease-end", "", "what happens when its lease ends: delete (default) or stop")
	flags.Uint32Var(&f.restart.Max, "restart", 0, "restart it after a crash, so often in a row (default: never)")
	flags.DurationVar(&f.restart.Backoff, "restart-backoff", 0, "before the first restart, doubled for each further one (default: 1s)")
	flags.StringVar(&f.spec.User, "user", "", "user of COMMAND and of execs that name none, NAME or UID, with :GROUP if meant")
	flags.StringVar(&f.spec.WorkingDir, "workdir", "", "where COMMAND and execs start (default: /workspace)")
	flags.BoolVar(&f.keep, "keep-on-command-end", false, "stay ready when COMMAND ends, instead of failing")
	flags.Float64Var(&f.spec.CPULimit, "cpus", 0, "CPUs at most, such as 0.5 (default: agboxd's, else no limit)")
	flags.Var((*value.Size)(&f.spec.MemoryLimit), "memory", "memory at most, such as 512m (default: agboxd's, else no limit)")
	flags.Int64Var(&f.spec.PidsLimit, "pids", 0, "processes and threads at most (default: agboxd's, else 4096)")
	flags.Var((*value.Size)(&f.spec.DiskLimit), "disk", "disk at most, such as 10g (default: no limit)")
	flags.Var((*value.Size)(&f.spec.ShmSize), "shm-size", "size of /dev/shm, such as 1g (default: the engine's)")
	flags.StringVar(&f.spec.GPUs, "gpus", "", "all, a number, or device ids separated by commas")
	flags.BoolVar(&f.spec.ReadOnlyRoot, "read-only", false, "make the image's file system read-only")
	flags.StringVar(&f.network, "network", "", "what can be reached: internet, which is all that is public, or none (default: internet)")
	flags.BoolVar(&f.private, "network-private", false, "private addresses can be reached too, with --network internet or --allow 0.0.0.0/0")
	flags.Var(&f.allow, "allow", "allow this destination and others given so, nothing else")
	flags.VarP((*value.Ports)(&f.spec.Ports), "publish", "p", "publish a port, on 127.0.0.1 without an IP")
	flags.StringVar(&f.spec.Hostname, "hostname", "", "host name of the sandbox")
	flags.Var((*value.Hosts)(&f.spec.ExtraHosts), "add-host", "line of /etc/hosts")
	flags.StringArrayVar(&f.spec.CapAdd, "cap-add", nil, "capability beside the default ones, such as IPC_LOCK")
	flags.BoolVar(&f.spec.AllowNewPrivileges, "allow-new-privileges", false, "let setuid programs such as sudo work")
	flags.StringVar(&f.spec.Runtime, "runtime", "", "the engine's runtime, such as runsc (default: the engine's own)")
	flags.BoolVar(&f.spec.NeverWarm, "no-warm", false, "make the sandbox anew, also where one is ready that was made ahead")
	flags.StringVar(&f.snapshot, "snapshot", "", "begin with the files and the spec of this snapshot, in place of an image")
	flags.StringVar(&f.config, "config", "", "YAML file with the spec, - for stdin; flags override it")
	flags.BoolVar(&f.noWait, "no-wait", false, "return when the sandbox is accepted")
	cmd.Args = func(cmd *cobra.Command, args []string) error { return f.complete(cmd, args) }
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, _ []string) error {
		return a.create(ctx, c, f)
	})
	return cmd
}

// complete takes in the arguments and what depends on more than one flag.
func (f *createFlags) complete(cmd *cobra.Command, args []string) error {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		if f.spec.Command = args[at:]; len(f.spec.Command) == 0 {
			return errors.New("no COMMAND follows --")
		}
		args = args[:at]
	}
	f.spec.Image = f.image
	switch {
	case len(args) > 1:
		return fmt.Errorf("want one image, got %d arguments; a COMMAND comes after --", len(args))
	case len(args) == 1 && f.image != "":
		return errors.New("the image is given twice")
	case len(args) == 1:
		f.spec.Image = args[0]
	case f.image == "" && f.config == "" && f.snapshot == "":
		return errors.New("name an IMAGE, or a --config that does, or a --snapshot")
	}
	if f.private && f.network == "" && f.allow == nil {
		f.network = string(sdk.NetworkInternet)
	}
	switch {
	case f.network != "" && f.allow != nil:
		return errors.New("--network and --allow exclude each other")
	case f.network != "":
		f.spec.Network = &sdk.Network{Mode: sdk.NetworkMode(f.network), Private: f.private}
	case f.allow != nil:
		f.spec.Network = &sdk.Network{Mode: sdk.NetworkAllow, Allow: f.allow, Private: f.private}
	}
	if cmd.Flags().Changed("lease") {
		f.spec.Lease = &f.lease
	} else if f.lease.OnEnd != "" {
		return errors.New("--on-lease-end is for a sandbox with --lease")
	} else if f.hold {
		f.spec.Lease = &f.lease
	}
	if f.restart.Max > 0 {
		f.spec.Restart = &f.restart
	} else if f.restart.Backoff != 0 {
		return errors.New("--restart-backoff is for a sandbox with --restart")
	}
	if f.keep {
		f.spec.OnCommandEnd = sdk.CommandEndKeeps
	}
	if cmd.Flags().Changed("idle-ttl") && f.spec.IdleTTL == 0 {
		f.spec.IdleTTL = sdk.NeverIdle
	}
	f.spec.Env, f.spec.Labels = f.env.Values, f.labels.Values
	return nil
}

func (a *app) create(ctx context.Context, c *sdk.Client, f createFlags) error {
	opts := []sdk.CreateOption{sdk.WithSandboxID(f.id), sdk.FromSnapshot(f.snapshot), sdk.WithWait(!f.noWait)}
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
	if !f.hold {
		box, err := c.CreateSandbox(ctx, f.spec, opts...)
		return a.created(ctx, c, box, err)
	}
	box, hold, err := c.CreateHeld(ctx, f.spec, opts...)
	if hold != nil {
		defer hold.Close()
	}
	if err := a.created(ctx, c, box, err); err != nil {
		return err
	}
	return lifeCommands{a}.held(ctx, box.ID, hold)
}

// created tells of a sandbox that was accepted, if it was.
func (a *app) created(ctx context.Context, c *sdk.Client, box sdk.Sandbox, err error) error {
	if box.ID == "" {
		return err
	}
	if ctx.Err() != nil {
		a.say("sandbox %s is still being created", box.ID)
	}
	if !a.json {
		fmt.Fprintln(a.out, box.ID)
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	handle := &agboxv1.SandboxHandle{SandboxId: box.ID}
	resp, unseen := c.Raw().GetSandbox(asking, &agboxv1.GetSandboxRequest{SandboxId: box.ID})
	if unseen == nil {
		handle = resp.GetSandbox()
	}
	return errors.Join(err, unseen, a.printJSON(&agboxv1.CreateSandboxResponse{Sandbox: handle}))
}

// lastLook bounds a look at a sandbox whose creation was left.
const lastLook = 5 * time.Second

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
		text := strings.TrimSpace(e.Phase + " " + e.Image)
		if e.BytesTotal > 0 {
			text += fmt.Sprintf(" (%s of %s)", units.HumanSize(float64(e.BytesDone)), units.HumanSize(float64(e.BytesTotal)))
		}
		if e.Phase == phaseQueued {
			text += fmt.Sprintf(": %d before it", e.QueuedBefore)
		}
		a.say("preparing: %s", text)
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
