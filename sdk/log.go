package sdk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// LogOption changes what ReadLog and LogChunks read.
type LogOption func(*agboxv1.ReadExecLogRequest)

// WithStderr reads what the command wrote to stderr; without it, to stdout.
func WithStderr() LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Stream = "stderr" }
}

// WithBoth reads what the command wrote to both, in the order in which it was written, from the beginning: WithOffset and
// WithTail make no difference. Where the order is not known, stdout comes first, or while the command runs, what comes first.
func WithBoth() LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Stream = bothStreams }
}

const bothStreams = "both"

// WithOffset begins at this byte. Beyond the end there is nothing to read, or with WithFollow nothing yet.
func WithOffset(offset uint64) LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Offset, r.TailBytes = offset, nil }
}

// WithTail begins so many bytes before the end that the log has when the daemon is asked, in place of WithOffset.
func WithTail(bytes uint64) LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Offset, r.TailBytes = 0, &bytes }
}

// WithFollow reads on until the exec has ended, over restarts of the daemon too.
func WithFollow() LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Follow = true }
}

// LogChunk is some output of an exec.
type LogChunk struct {
	// Stderr: it was written there, else to stdout.
	Stderr bool
	// Offset is where Data begins in all that was written to this stream.
	Offset uint64
	Data   []byte
	// WrittenAt, when the first byte of Data came out of the sandbox, is known with WithBoth only, and zero even then of what
	// was written before the daemon kept the time, at a terminal, and by a sandbox that died just then.
	WrittenAt time.Time
}

// LogChunks yields the output of an exec, a chunk of one stream after the other, none of them empty. It ends with the log as
// it was then, or with WithFollow as the exec left it; how that ended, WaitExec tells. Else it ends with one last error:
// ErrExecNotFound, ErrUnavailable when the daemon does not run, what ended the context. With WithFollow it goes on over
// restarts of the daemon, and nothing comes twice.
func (c *Client) LogChunks(ctx context.Context, execID string, opts ...LogOption) iter.Seq2[LogChunk, error] {
	first := &agboxv1.ReadExecLogRequest{ExecId: execID}
	for _, opt := range opts {
		opt(first)
	}
	return func(yield func(LogChunk, error) bool) {
		at := logPlace{req: proto.CloneOf(first)}
		err := c.raw.Resume(ctx, func(met func()) error {
			stream, err := c.raw.ReadExecLog(ctx, proto.CloneOf(at.req))
			if err != nil {
				return err
			}
			defer stream.Close()
			for {
				p, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if at.req.Follow {
					met()
				}
				if chunk := at.take(p); len(chunk.Data) > 0 && !yield(chunk, nil) {
					return nil
				}
			}
		})
		if err != nil {
			yield(LogChunk{}, err)
		}
	}
}

// logPlace is how far a reading has come.
type logPlace struct {
	req  *agboxv1.ReadExecLogRequest // what the next stream asks for
	next [2]uint64                   // the bytes of both streams that follow
}

// take also drops what came before, of both streams, which begin anew where one broke.
func (at *logPlace) take(p *agboxv1.ExecLogChunk) LogChunk {
	c := LogChunk{Offset: p.GetOffset(), Data: p.GetData(), Stderr: at.req.Stream == "stderr", WrittenAt: timeOf(p.GetWrittenAt())}
	end := c.Offset + uint64(len(c.Data))
	if at.req.Stream == bothStreams {
		next := &at.next[0]
		if c.Stderr = p.GetStream() == "stderr"; c.Stderr {
			next = &at.next[1]
		}
		if known := min(max(*next, c.Offset), end) - c.Offset; known > 0 {
			c.Offset, c.Data = c.Offset+known, c.Data[known:]
		}
		*next = max(*next, end)
	}
	at.req.Offset, at.req.TailBytes = end, nil
	return c
}

// ReadLog reads what LogChunks yields as one stream of bytes, and fails as that ends. Read belongs to one goroutine; Close
// must follow, may be called from any and more than once, and lets a Read return with fs.ErrClosed.
func (c *Client) ReadLog(ctx context.Context, execID string, opts ...LogOption) io.ReadCloser {
	ctx, cancel := context.WithCancelCause(ctx)
	in, out := io.Pipe()
	r := &logReader{Reader: in, out: out, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for chunk, err := range c.LogChunks(ctx, execID, opts...) {
			if err == nil {
				_, err = out.Write(chunk.Data)
			}
			if err != nil {
				out.CloseWithError(err)
				return
			}
		}
		out.Close()
	}()
	return r
}

type logReader struct {
	io.Reader
	out    *io.PipeWriter
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func (r *logReader) Close() error {
	r.cancel(fs.ErrClosed)
	r.out.CloseWithError(fs.ErrClosed)
	<-r.done
	return nil
}
