package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/cmd/agbox/gate"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/text"
)

// Exit codes beside those of commands run by exec.
const (
	exitError = 1
	exitUsage = 2
)

// app is one run of the command line.
type app struct {
	stdio
	json    bool
	host    string // where the daemon is, else the environment says
	ca      string
	entered bool // arguments and flags were understood
	away    sync.Once
	raw     atomic.Bool // our terminal is another program's
}

// The commands, by what they are about.
type (
	daemonCommands   struct{ *app }
	lifeCommands     struct{ *app }
	execCommands     struct{ *app }
	fileCommands     struct{ *app }
	snapshotCommands struct{ *app }
)

// run does what the arguments say and returns the exit code.
func run(args []string, io stdio) int {
	a := &app{stdio: io}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var status *statusError
	switch {
	case errors.As(err, &status):
		a.report(status.err)
		return status.code
	case !a.entered:
		a.report(err)
		a.say("hint: %s --help", cmd.CommandPath())
		return exitUsage
	}
	a.report(err)
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "agbox",
		Short: "Sandboxes for AI agents, test runs and untrusted scripts",
		Example: `  id=$(agbox sandbox create debian:12 --mount .:/workspace:rw)
  agbox sandbox exec $id -- make test
  agbox sandbox delete $id`,
		Args:             cobra.NoArgs,
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { a.entered = true },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print responses as JSON, one object per line")
	root.PersistentFlags().StringVar(&a.host, "host", "", "daemon of another machine: https://HOST:PORT of a gateway, or ssh://USER@HOST (default $AGBOX_HOST)")
	root.PersistentFlags().StringVar(&a.ca, "tls-ca", "", "PEM file with the certificate of that gateway (default $AGBOX_CA)")
	daemon, files := daemonCommands{a}, fileCommands{a}
	root.AddCommand(daemon.versionCommand(), daemon.pingCommand(), daemon.infoCommand(), daemon.doctorCommand(), daemon.pruneCommand(), a.sandboxCommand(),
		snapshotCommands{a}.snapshotCommand(), files.cpCommand(), files.lsCommand(), files.statCommand(), files.rmCommand(), files.catCommand(), files.putCommand(), files.mkdirCommand(), files.mvCommand(), files.watchFilesCommand(),
		files.changesCommand(), daemon.portForwardCommand(), gate.Command(&a.json), gate.DialCommand())
	return root
}

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Create, use and delete sandboxes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	life, execs := lifeCommands{a}, execCommands{a}
	cmd.AddCommand(a.createCommand(), a.listCommand(), a.getCommand(), life.stopCommand(), life.resumeCommand(), life.pauseCommand(),
		life.unpauseCommand(), life.drainCommand(), life.extendCommand(),
		life.deleteCommand(), execs.execCommand(), execs.attachCommand(), a.eventsCommand(), execs.logsCommand(), execs.signalCommand(),
		life.holdCommand(), life.detachCommand(),
		life.waitCommand(), a.watchCommand(), daemonCommands{a}.statsCommand(), execs.execsCommand(), snapshotCommands{a}.forkCommand())
	return cmd
}

// with makes a command of what needs the daemon. The context ends with the first signal.
func (a *app) with(do func(ctx context.Context, c *sdk.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err = do(ctx, c, args)
		if hit := (*interrupt)(nil); err != nil && errors.As(context.Cause(ctx), &hit) {
			return &statusError{code: hit.code()}
		}
		return err
	}
}

func (a *app) connect() (*sdk.Client, error) {
	opts := []sdk.Option{sdk.WithBrokenStream(a.broken)}
	if host := gate.Host(a.host, a.ca); host != nil {
		opts = append(opts, host)
	}
	return sdk.New(opts...)
}

// broken tells once that a wait may take longer than thought.
func (a *app) broken(error) {
	a.away.Do(func() { a.say("agboxd went away; waiting for it to come back") })
}

// statusError ends the run with a code of its own, silently where err is nil.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return fmt.Sprint(e.err) }
func (e *statusError) Unwrap() error { return e.err }

// say writes to the person in front, never to where results go.
func (a *app) say(format string, args ...any) {
	end := "\n"
	if a.raw.Load() {
		end = "\r\n"
	}
	fmt.Fprint(a.err, "agbox: "+text.Line(fmt.Sprintf(format, args...))+end)
}

// report says what went wrong and what to do about it.
func (a *app) report(err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		a.say("%s", line)
	}
	if h := hint(err); h != "" {
		a.say("hint: %s", h)
	}
}

func hint(err error) string {
	var failed *sdk.SandboxFailedError
	switch {
	case errors.As(err, &failed):
		return fmt.Sprintf("agbox sandbox logs %[1]s tells what happened, agbox sandbox delete %[1]s cleans up", failed.ID)
	case errors.Is(err, sdk.ErrSandboxNotFound):
		return "agbox sandbox list --all shows what there is"
	}
	return ""
}
