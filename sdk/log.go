package sdk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"google.golang.org/protobuf/proto"
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

// ReadLog reads the output of an exec by way of the daemon, for programs that cannot open its files; FollowLogs reads
// the files themselves. The daemon is asked at the first Read, which tells what it refuses: ErrExecNotFound,
// ErrUnavailable when it does not run. io.EOF is the end of the log as it was then, or with WithFollow as the exec
// left it; how that ended, WaitExec tells. Read belongs to one goroutine; Close must follow, may be called from any
// and more than once, and lets a Read return with fs.ErrClosed. The context's end lets it return too.
func (c *Client) ReadLog(ctx context.Context, execID string, opts ...LogOption) io.ReadCloser {
	return c.logReader(ctx, execID, opts)
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

// LogChunks yields what ReadLog reads, a chunk of one stream after the other, none of them empty. It ends as that does, with
// one last error unless that is io.EOF. With WithFollow it goes on over restarts of the daemon, and nothing comes twice.
func (c *Client) LogChunks(ctx context.Context, execID string, opts ...LogOption) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		r := c.logReader(ctx, execID, opts)
		defer r.Close()
		for {
			r.rest = nil
			err := r.receive()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(LogChunk{}, err)
				return
			case len(r.rest) > 0 && !yield(r.chunk, nil):
				return
			}
		}
	}
}

func (c *Client) logReader(ctx context.Context, execID string, opts []LogOption) *logReader {
	req := &agboxv1.ReadExecLogRequest{ExecId: execID}
	for _, opt := range opts {
		opt(req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return &logReader{client: c, ctx: ctx, cancel: cancel, req: req, pause: firstLogPause}
}

// Between attempts to reach a daemon that went away.
const (
	firstLogPause = 20 * time.Millisecond
	lastLogPause  = time.Second
)

type logReader struct {
	client *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	req    *agboxv1.ReadExecLogRequest // what the next stream asks for
	stream *raw.LogStream
	met    bool      // there was a daemon to answer
	chunk  LogChunk  // received last
	rest   []byte    // of it, not yet read
	next   [2]uint64 // the bytes of both streams that follow
	pause  time.Duration
	err    error
}

func (r *logReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil && len(p) > 0 {
		r.err = r.receive()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *logReader) Close() error {
	r.cancel(fs.ErrClosed)
	return nil
}

// receive takes the next chunk, or opens the next stream where one broke. It returns what ends the reading.
func (r *logReader) receive() error {
	chunk, err := r.open()
	switch {
	case err == nil:
		r.met, r.pause = true, firstLogPause
		r.take(chunk)
		return nil
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case !r.req.Follow || !r.met || !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled):
		r.cancel(err)
		return err
	}
	if r.stream != nil {
		r.stream.Close()
		r.stream = nil
	}
	if r.client.broken != nil {
		r.client.broken(err)
	}
	timer := time.NewTimer(r.pause)
	defer timer.Stop()
	r.pause = min(2*r.pause, lastLogPause)
	select {
	case <-timer.C:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// take also drops what came before, of both streams, which begin anew where one broke.
func (r *logReader) take(chunk *agboxv1.ExecLogChunk) {
	c := LogChunk{Offset: chunk.GetOffset(), Data: chunk.GetData(), Stderr: r.req.Stream == "stderr"}
	if at := chunk.GetWrittenAt(); at != nil {
		c.WrittenAt = at.AsTime()
	}
	end := c.Offset + uint64(len(c.Data))
	if r.req.Stream == bothStreams {
		next := &r.next[0]
		if c.Stderr = chunk.GetStream() == "stderr"; c.Stderr {
			next = &r.next[1]
		}
		if known := min(max(*next, c.Offset), end) - c.Offset; known > 0 {
			c.Offset, c.Data = c.Offset+known, c.Data[known:]
		}
		*next = max(*next, end)
	}
	r.req.Offset, r.req.TailBytes = end, nil
	r.chunk, r.rest = c, c.Data
}

func (r *logReader) open() (*agboxv1.ExecLogChunk, error) {
	if r.stream == nil {
		stream, err := r.client.raw.ReadExecLog(r.ctx, proto.CloneOf(r.req))
		if err != nil {
			return nil, err
		}
		r.stream = stream
	}
	return r.stream.Recv()
}
