package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// primary is the container's name as the daemon gave it.
func (b *box) primary() string { return "agbox-primary-" + b.id }

// run runs a command to its end, which must come in time.
func (b *box) run(ctx context.Context, command []string, opts ...sdk.ExecOption) (result sdk.RunResult, err error) {
	err = within(ctx, patience, strings.Join(command, " "), func(ctx context.Context) (err error) {
		result, err = b.SDK.Run(ctx, b.id, command, opts...)
		return err
	})
	return result, err
}

// script is run with a shell, as root, and must succeed.
func (b *box) script(ctx context.Context, text string) error {
	result, err := b.run(ctx, []string{"sh", "-c", text}, sdk.WithUser("0"))
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("%q ended with %d: %.300s", text, result.ExitCode, result.Stderr)
	}
	return err
}

// works checks that the sandbox serves as ever.
func (b *box) works(ctx context.Context) error {
	result, err := b.run(ctx, []string{"sh", "-c", "echo served; exit 7"}, sdk.WithUser("1000"))
	if err == nil && (result.ExitCode != 7 || string(result.Stdout) != "served\n") {
		err = fmt.Errorf("an ordinary exec ended with %d and said %q, %q", result.ExitCode, result.Stdout, result.Stderr)
	}
	if err != nil {
		return fmt.Errorf("the attacked sandbox does not work: %w", err)
	}
	return nil
}

// hold starts a command and returns once it has said "held".
func (b *box) hold(ctx context.Context, command []string, opts ...sdk.ExecOption) (exec sdk.Exec, err error) {
	err = within(ctx, patience, strings.Join(command, " "), func(ctx context.Context) error {
		exec, err = b.SDK.CreateExec(ctx, b.id, command, opts...)
		if err != nil {
			return err
		}
		log := b.SDK.ReadLog(ctx, exec.ID, sdk.WithFollow())
		defer log.Close()
		for lines := bufio.NewReader(log); ; {
			line, err := lines.ReadString('\n')
			if strings.HasPrefix(line, "held") {
				return nil
			}
			if errors.Is(err, io.EOF) {
				stderr, _ := io.ReadAll(b.SDK.ReadLog(ctx, exec.ID, sdk.WithStderr()))
				return fmt.Errorf("it ended before it held anything: %.300s", stderr)
			}
			if err != nil {
				return err
			}
		}
	})
	return exec, err
}

func (b *box) cancel(ctx context.Context, exec sdk.Exec) error {
	return within(ctx, patience, "cancel", func(ctx context.Context) error {
		err := b.SDK.CancelExec(ctx, exec.ID)
		if errors.Is(err, sdk.ErrExecAlreadyTerminal) {
			return nil
		}
		return err
	})
}

// alone checks that nothing runs beside agbox-init.
func (b *box) alone(ctx context.Context) error {
	var left [][]string
	for over := time.Now().Add(5 * time.Second); time.Now().Before(over); time.Sleep(100 * time.Millisecond) {
		top, err := b.Engine.ContainerTop(ctx, b.primary(), nil)
		if err != nil {
			return err
		}
		if len(top.Processes) == 1 {
			return nil
		}
		left = top.Processes[1:]
	}
	return fmt.Errorf("%d processes escaped: %.500q", len(left), left)
}

// fails waits until the sandbox is FAILED with one of the codes.
func (b *box) fails(ctx context.Context, codes ...string) error {
	return within(ctx, 2*patience, "wait for FAILED", func(ctx context.Context) error {
		found, reached, err := b.SDK.WaitSandbox(ctx, b.id, 0, sdk.StateFailed)
		if err != nil {
			return err
		}
		for _, code := range codes {
			if reached && found.ErrorCode == code {
				return nil
			}
		}
		return fmt.Errorf("it is %s with %q, %q in place of one of %q", found.State, found.ErrorCode, found.ErrorMessage, codes)
	})
}

// pause waits, which is what some attacks are about.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
