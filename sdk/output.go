package sdk

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// maxRead is how much of a log file is read, and passed on, at once.
const maxRead = 256 << 10

// errNotHere: what the daemon tells to be in a file cannot be read here. It may be a file of another machine.
var errNotHere = errors.New("sdk: the daemon's files cannot be read here")

// output is one stream of a command's output on its way to a writer. It belongs to one goroutine.
type output struct {
	to     io.Writer
	offset *uint64 // of the next byte; nil: from now on
	path   string  // of the log file, where the daemon runs
	file   *os.File
	buffer []byte
}

func (o *output) next() uint64 {
	if o.offset == nil {
		return 0
	}
	return *o.offset
}

// write passes on what is in a chunk, or what the file has in its place: then it fails with errNotHere where that cannot
// be read, and offset is behind what has been.
func (o *output) write(ctx context.Context, chunk *agboxv1.ExecLogChunk) error {
	at, data := chunk.GetOffset(), chunk.GetData()
	end := at + uint64(len(data)) + chunk.GetLength()
	for o.to != nil && at < end {
		if chunk.GetLength() > 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o.buffer = slices.Grow(o.buffer[:0], int(min(end-at, maxRead)))
			data = o.buffer[:min(end-at, maxRead)]
			if err := o.read(data, at); err != nil {
				return err
			}
		}
		if _, err := o.to.Write(data); err != nil {
			return &refusedOutput{err}
		}
		at += uint64(len(data))
		o.offset = new(at)
	}
	o.offset = &end
	return nil
}

// read opens the file when there is something in it: before, the command may not have begun.
func (o *output) read(data []byte, offset uint64) error {
	if o.file == nil {
		named, err := os.Lstat(o.path)
		if err != nil || !named.Mode().IsRegular() {
			return errNotHere
		}
		if o.file, err = os.Open(o.path); err != nil {
			return errNotHere
		}
	}
	if _, err := o.file.ReadAt(data, int64(offset)); err != nil { // also where it is shorter
		return errNotHere
	}
	return nil
}

func (o *output) close() { _ = o.file.Close() } // it was only read; nil too

// refusedOutput is the error of a writer. It wraps none: whatever the cause is, another stream is no help.
type refusedOutput struct{ cause error }

func (r *refusedOutput) Error() string { return r.cause.Error() }
