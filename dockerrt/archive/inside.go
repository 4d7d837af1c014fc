package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/text"
)

// insideEnd is how long the end of such a command is waited for when it has no more to tell. One in a frozen sandbox ends
// when that goes on.
const insideEnd = 2 * time.Second

// insideStart is how long such a command may take to start, which takes some milliseconds. An agbox-init that is too old to
// be given a pipe does not answer.
const insideStart = 10 * time.Second

var errNotStarted = files.Refuse(files.ErrRefused, "the sandbox's agbox-init does not answer; try again, or create the sandbox anew if an older agboxd has made it")

// insideStall is how long such a command may take to read a part of what it is to write, or to answer after the last.
const insideStall = time.Minute

var errStuck = files.Refuse(files.ErrRefused, "the sandbox has written nothing for a minute; look for a mount in it that is not served, or try again")

// inside runs agbox-init in its mode "file" in the sandbox, as root, and hands each record that it writes to take, until
// the last one, which it returns. The command ends with ctx, with an error of take, with the daemon and with the sandbox.
//
// The records come through a pipe of its own, which the command has as descriptor 1: agbox-init's pump is not in between,
// so a slow reader holds up nobody but the command, and a dead one ends it.
func (fs *Files) inside(ctx context.Context, sandboxID string, take func(fields []string) error, args ...string) (last []string, err error) {
	return fs.insideAs(ctx, sandboxID, root, nil, take, args...)
}

// root is as whom the daemon looks, but for what a user asks for.
const root = "0"

// insideAs is inside as any user of the sandbox, and for a command that is told something first: feed, unless nil, writes it. When that fails,
// or ctx ends, the command takes away what it has half done.
func (fs *Files) insideAs(ctx context.Context, sandboxID, user string, feed func(io.Writer) error, take func(fields []string) error, args ...string) (last []string, err error) {
	guest, err := fs.config.Booted(sandboxID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", files.ErrNotRunning, err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	defer null.Close()
	input, toGuest := null, (*os.File)(nil)
	if feed != nil {
		if input, toGuest, err = os.Pipe(); err != nil {
			return nil, errors.Join(err, to.Close())
		}
		defer toGuest.Close()
	}
	id := protocol.InsidePrefix + uuid.NewString()
	running, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	waiting, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	unanswered := time.AfterFunc(insideStart, func() { abandon(errNotStarted) })
	defer unanswered.Stop()
	ended := make(chan error, 1)
	go func() {
		hand := func() { // the command's ends are its own; once more does no harm
			to.Close()
			input.Close()
		}
		result, err := guest.Exec(running, link.ExecSpec{
			ID: id, Argv: append([]string{fs.config.Init, "file"}, args...), Cwd: "/", User: user,
			Files: [3]*os.File{to, null, null}, Stdin: [2]*os.File{input, null},
			OnStarted: func(int) {
				unanswered.Stop()
				hand()
			},
		})
		hand() // what the command wrote can be read to its end now
		if err == nil {
			guest.Ack(id)
			err = insideResult(result)
		}
		ended <- err
	}()
	defer context.AfterFunc(waiting, func() {
		from.SetReadDeadline(time.Unix(1, 0))
		toGuest.SetWriteDeadline(time.Unix(1, 0)) // also of none
	})()

	grace := time.Duration(0)
	if feed != nil {
		grace = insideEnd
		stalled := time.AfterFunc(insideStall, func() { abandon(errStuck) })
		defer stalled.Stop()
		err = feed(writerFunc(func(p []byte) (int, error) {
			stalled.Reset(insideStall)
			n, err := toGuest.Write(p)
			stalled.Stop() // from here on it is whoever feeds that takes the time
			return n, err
		}))
		stalled.Reset(insideStall)
		toGuest.Close()
	}
	if err == nil || errors.Is(err, syscall.EPIPE) { // it tells why it reads no further
		last, err = readRecords(bufio.NewReaderSize(from, 64<<10), take)
	}
	if err != nil {
		from.Close()
		guest.Cancel(ctx, id, grace)
	}
	defer time.AfterFunc(insideEnd, giveUp).Stop()
	end := <-ended
	switch {
	case waiting.Err() != nil:
		return nil, context.Cause(waiting)
	case errors.Is(err, io.EOF) && errors.Is(end, files.ErrRefused):
		return nil, end
	case errors.Is(err, io.EOF): // it ended before its time
		return nil, errors.Join(files.ErrNotRunning, end)
	}
	return last, err
}

type writerFunc func([]byte) (int, error)

// maxUserMessage bounds what is repeated of a sandbox, in bytes.
const maxUserMessage = 512

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// insideResult is nil for a command that was there.
func insideResult(result protocol.Result) error {
	switch {
	case result.ErrorCode == protocol.CodeStopping:
		return files.ErrNotRunning
	case result.ErrorCode == protocol.CodeUserUnknown:
		return files.Refuse(files.ErrOwner, "%s; name one that is, or a number", text.Bound(result.ErrorMessage, maxUserMessage))
	case result.ErrorCode != "":
		return fmt.Errorf("agbox-init cannot look into the sandbox: %s", result.ErrorMessage)
	case result.ExitCode == 2:
		return files.Refuse(files.ErrRefused, "agbox-init could not look into the sandbox: it found no room for itself there; see to its limits of processes and memory")
	case result.ExitCode != 0:
		return fmt.Errorf("agbox-init was ended inside the sandbox: exit code %d", result.ExitCode)
	}
	return nil
}

func readRecords(from *bufio.Reader, take func([]string) error) ([]string, error) {
	for {
		fields, err := protocol.ReadFile(from)
		if err != nil {
			return nil, err
		}
		switch fields[0] {
		case protocol.FileEnd, protocol.FileMore:
			return fields, nil
		case protocol.FileFailed:
			return nil, files.ParseFailure(fields)
		}
		if err := take(fields); err != nil {
			return nil, err
		}
	}
}
