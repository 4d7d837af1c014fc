package layout

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/execlog"
)

// OpenOutputs opens both logs of an exec; see OpenOutput.
func (l Layout) OpenOutputs(sandboxID, execID string) (stdout, stderr *os.File, err error) {
	if stdout, err = OpenOutput(l.Log(sandboxID, execID, "stdout")); err != nil {
		return nil, nil, fmt.Errorf("cannot open the log: %w", err)
	}
	if stderr, err = OpenOutput(l.Log(sandboxID, execID, "stderr")); err != nil {
		stdout.Close()
		return nil, nil, fmt.Errorf("cannot open the log: %w", err)
	}
	return stdout, stderr, nil
}

// OpenIndex opens the file for the order of the exec's output.
func (l Layout) OpenIndex(sandboxID, execID string) (*os.File, error) {
	index, err := OpenOutput(l.Index(sandboxID, execID))
	if err != nil {
		return nil, fmt.Errorf("cannot open the log's index: %w", err)
	}
	return index, nil
}

// OpenOutput opens a log for writing by agbox-init, creating it when it is not there. What is in it stays: the
// same exec may be opened again after a restart. Logs can be read from inside the sandbox.
func OpenOutput(path string) (*os.File, error) {
	return open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW, 0o644)
}

// open is os.OpenFile for regular files, without the five system calls that find out that Go's poller has no use for them.
func open(path string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if err != unix.EINTR {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// recordRoom is more than any result takes.
const recordRoom = 4096

// OpenRecord opens the file for an exec's result, and sees to it that the result will find room on the disk: a command
// is not started whose exit code could be lost. What is in the file stays.
func (l Layout) OpenRecord(sandboxID, execID string) (*os.File, error) {
	record, err := open(l.Result(sandboxID, execID), unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(record.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, recordRoom)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(fmt.Errorf("no room for the result %s: %w", record.Name(), err), record.Close())
	}
	return record, nil
}

// Beginning is where the output of something begins in its files: stdout, stderr.
type Beginning [2]int64

// BeginLife has what is written to the files from now on come after what an earlier life of the sandbox has left there.
func BeginLife(stdout, stderr *os.File) (life Beginning, err error) {
	for i, file := range []*os.File{stdout, stderr} {
		if life[i], err = file.Seek(0, io.SeekEnd); err != nil {
			return life, fmt.Errorf("cannot go on with the log %s: %w", file.Name(), err)
		}
	}
	return life, nil
}

// OutputTail is the end of what was written from the beginning on, for a person.
func (l Layout) OutputTail(sandboxID, execID string, from Beginning) string {
	var ends []string
	for i, stream := range []string{"stdout", "stderr"} {
		log := execlog.New(l.Log(sandboxID, execID, stream))
		if size, err := log.Size(); err == nil && size > from[i] {
			text := make([]byte, min(size-from[i], engine.TailSize))
			if n, err := log.Read(text, size-int64(len(text))); err == nil && n > 0 {
				ends = append(ends, stream+": "+engine.Quote(string(text[:n])))
			}
		}
		_ = log.Close() // it was only read
	}
	if len(ends) == 0 {
		return "(none)"
	}
	return strings.Join(ends, "; ")
}
