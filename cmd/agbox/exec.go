package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/cmd/agbox/value"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// Exit codes of exec where the command has none of its own.
const (
	exitTimedOut   = 124 // as with timeout(1)
	exitFault      = 125 // daemon or sandbox at fault, or the result is unknown
	exitCannotRun  = 126
	exitNotFound   = 127
	exitKilled     = 137 // cancelled by somebody else, exit code unknown
	exitBrokenPipe = 141 // nobody reads our output any more: cancelled
)

type execFlags struct {
	cwd, id, user string
	env           value.Pairs
	detach        bool
	timeout       time.Duration
	maxLog        value.Size
	stdin, tty    bool
	keys          string
}

func (a execCommands) execCommand() *cobra.Command {
	f := execFlags{env: value.Pairs{Inherit: true}}
	cmd := &cobra.Command{
		Use:   "exec SANDBOX [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox, show its output while it runs, and exit as it does.

Ctrl-C cancels the command and waits for its end; once more leaves at once. TERM does the same, and leaves after
12 s where the command, or the sandbox, does not end it.

With -i it reads what comes in here, to the end; with -t it has a terminal, and with both it is as if it ran
in this one: each key is its own, but those that detach (ctrl-p,ctrl-q), after which it goes on.

Exit codes: the command's own, 128+N if signal N ended it; 124 if its --timeout did; 125 if agboxd or the sandbox is at fault,
126 if the command cannot be run, 127 if it is not found; 130 after Ctrl-C, 143 after TERM; 137 if
somebody else cancelled it and its exit code is unknown; 2 for wrong usage.`,
		Example: `  agbox sandbox exec my-sandbox -- go test ./...
  agbox sandbox exec my-sandbox -it -- sh
  tar c . | agbox sandbox exec my-sandbox -i -- tar x
  agbox sandbox exec my-sandbox --cwd /tmp --env TOKEN -- sh -c 'echo $TOKEN | wc -c'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("name a sandbox and, after --, a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(cmd.Context(), args[0], args[1:], f)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return errors.Join(err, errors.New("hint: flags of the command itself come after --"))
	})
	flags := cmd.Flags()
	flags.StringVar(&f.cwd, "cwd", "", "working directory; a relative one starts at the sandbox's, else /workspace")
	flags.StringVar(&f.user, "user", "", "NAME or UID, with :GROUP if meant (default: the sandbox's)")
	flags.Var(&f.env, "env", "environment variable; KEY alone takes the value from here")
	flags.StringVar(&f.id, "exec-id", "", "id of the exec, never used before (default: a UUID)")
	flags.DurationVar(&f.timeout, "timeout", 0, "end the command after so long, 0: never")
	flags.Var(&f.maxLog, "max-output", "let each log file grow to this size, such as 10m (default: agboxd's, 1g)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the exec's id and leave it running")
	flags.BoolVarP(&f.stdin, "interactive", "i", false, "pass our input on to the command; with -d: leave its input open for attach")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal, of the size of ours")
	addDetachKeys(cmd, &f.keys)
	return cmd
}

func (a execCommands) exec(ctx context.Context, sandbox string, command []string, f execFlags) error {
	keys, err := detachKeys(f.keys)
	if err != nil {
		return err
	}
	terminal, err := a.window(&f)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return &statusError{exitFault, err}
	}
	defer c.Close()
	signal.Ignore(syscall.SIGPIPE) // a write tells it as well, and then there is something to do
	defer signal.Reset(syscall.SIGPIPE)
	signals, ignore := listen()
	defer ignore()
	outside := ctx
	ctx, leave := context.WithCancelCause(ctx)
	s := &session{app: a.app, client: c, signals: signals, accepted: make(chan string, 1), leave: leave, patience: termPatience}
	s.obeying.Go(func() { s.obey(ctx) })
	defer s.obeying.Wait()
	defer leave(nil)

	resp, err := c.Raw().CreateExec(ctx, &agboxv1.CreateExecRequest{
		SandboxId: sandbox, Command: command, Cwd: f.cwd, EnvOverrides: f.env.Values, ExecId: f.id, User: f.user,
		MaxOutputBytes: uint64(f.maxLog), Timeout: f.limit(),
		Stdin: f.stdin, Tty: terminal,
	})
	if err != nil {
		return s.refused(err)
	}
	if f.detach {
		return s.detached(outside, resp)
	}
	s.accepted <- resp.GetExecId()
	console := &console{app: a.app, client: c, begun: true, stdin: f.stdin, keys: keys}
	exec, err := console.run(ctx, resp.GetExecId(), sdk.WithOutputFrom(0, 0))
	if errors.Is(err, sdk.ErrDetached) {
		return a.left(exec.ID)
	}
	return s.end(ctx, exec, err)
}

// window returns the size of the terminal that the command is to have, nil for none, and has it named in TERM as ours.
func (a execCommands) window(f *execFlags) (*agboxv1.TerminalSize, error) {
	own := a.ownTerminal()
	switch {
	case !f.tty:
		return nil, nil
	case own == nil && !f.detach:
		return nil, &statusError{exitUsage, errors.New("-t needs a terminal, and input or output here is none: leave it out, or add -d")}
	case a.json && !f.detach:
		return nil, &statusError{exitUsage, errors.New("-t shows what the command writes, which --json does not: leave one out")}
	}
	if name, given := os.LookupEnv("TERM"); given && f.env.Values["TERM"] == "" && own != nil {
		if err := f.env.Set("TERM=" + name); err != nil {
			return nil, err
		}
	}
	rows, columns := uint16(usualRows), uint16(usualColumns)
	if own != nil {
		rows, columns = windowSize(own)
	}
	return &agboxv1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}, nil
}

// limit is the exec's timeout, nil for none.
func (f execFlags) limit() *durationpb.Duration {
	if f.timeout == 0 {
		return nil
	}
	return durationpb.New(f.timeout)
}
