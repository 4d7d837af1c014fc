package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/moby/term"

	"github.com/agbox-dev/agbox/sdk"
)

// Size of a terminal that does not know its own.
const (
	usualRows    = 24
	usualColumns = 80
)

// defaultDetachKeys are docker's.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// feedSize is how much of our input is passed on at once, in bytes; each time has to be confirmed.
const feedSize = 1 << 20

// console joins our input, output and terminal to those of a command.
type console struct {
	*app
	client *sdk.Client
	begun  bool   // by us: a daemon that is away comes back to it
	stdin  bool   // our input is the command's
	keys   []byte // that end the attachment, typed at our terminal
}

// ownTerminal returns the terminal that agbox runs in, nil when it runs in none.
func (a *app) ownTerminal() *os.File {
	in, reads := a.in.(*os.File)
	out, writes := a.out.(*os.File)
	if !reads || !writes || !term.IsTerminal(in.Fd()) || !term.IsTerminal(out.Fd()) {
		return nil
	}
	return in
}

// windowSize is a terminal's, in characters.
func windowSize(terminal *os.File) (rows, columns uint16) {
	window, err := term.GetWinsize(terminal.Fd())
	if err != nil || window.Height == 0 || window.Width == 0 {
		return usualRows, usualColumns
	}
	return window.Height, window.Width
}

// run returns how the exec ended, as Wait does: sdk.ErrDetached after the keys for it. Our terminal is as it was before.
func (c *console) run(ctx context.Context, execID string, opts ...sdk.AttachOption) (sdk.Exec, error) {
	if !c.json {
		opts = append(opts, sdk.WithOutput(c.out, c.err))
	}
	var attachment *sdk.Attachment
	attach := func() (err error) {
		attachment, err = c.client.AttachExec(ctx, execID, opts...)
		return err
	}
	err := attach()
	if c.begun && errors.Is(err, sdk.ErrUnavailable) {
		err = c.client.Raw().Await(ctx, attach)
	}
	if err != nil {
		return sdk.Exec{ID: execID}, err
	}
	defer attachment.Detach()
	exec := attachment.Exec()
	if c.stdin && (exec.Stdin || exec.Terminal) {
		in := c.in
		if terminal := c.ownTerminal(); terminal != nil && exec.Terminal {
			restore, err := c.takeOver(terminal)
			if err != nil {
				return exec, err
			}
			defer restore()
			unfollow := followSize(terminal, attachment)
			defer unfollow()
			in = term.NewEscapeProxy(in, c.keys)
		}
		go feed(attachment, in) // its read ends with the process: nothing else can end it
	}
	return attachment.Wait()
}

// takeOver has each key passed on as it is; restore must follow.
func (c *console) takeOver(terminal *os.File) (restore func(), err error) {
	before, err := term.SetRawTerminal(terminal.Fd())
	if err != nil {
		return nil, err
	}
	c.raw.Store(true)
	return func() {
		if err := term.RestoreTerminal(terminal.Fd(), before); err != nil {
			c.say("cannot restore the terminal: %v: type reset", err)
		}
		c.raw.Store(false)
	}, nil
}

// followSize gives the command's terminal the size of ours, and keeps it so; end must follow.
func followSize(terminal *os.File, attachment *sdk.Attachment) (end func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	done := make(chan struct{})
	resize := func() { _ = attachment.Resize(windowSize(terminal)) } // it fails when all is over, which Wait tells
	resize()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-changed:
				resize()
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(changed)
		close(done)
		attachment.Detach() // lets go of a Resize that waits
		group.Wait()
	}
}

// feed passes our input on to its end, which is the end of the command's: but not that of a terminal, which is its own.
func feed(attachment *sdk.Attachment, in io.Reader) {
	_, err := io.CopyBuffer(struct{ io.Writer }{attachment}, struct{ io.Reader }{in}, make([]byte, feedSize))
	switch {
	case err == nil && !attachment.Exec().Terminal:
		_ = attachment.CloseStdin() // it fails when all is over, which Wait tells
	case errors.As(err, new(term.EscapeError)), errors.Is(err, syscall.EIO): // or the terminal was hung up
		attachment.Detach()
	}
}
