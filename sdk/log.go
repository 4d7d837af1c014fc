package sdk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"google.golang.org/protobuf/proto"
)

// LogOption changes what ReadLog reads.
type LogOption func(*agboxv1.ReadExecLogRequest)

// WithStderr reads what the command wrote to stderr; without it, to stdout.
func WithStderr() LogOption {
	return func(r *agboxv1.ReadExecLogRequest) { r.Stream = "stderr" }
}

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
	met    bool   // there was a daemon to answer
	rest   []byte // received and not yet read
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
	chunk, err := r.next()
	switch {
	case err == nil:
		r.met, r.pause = true, firstLogPause
		r.rest = chunk.GetData()
		r.req.Offset, r.req.TailBytes = chunk.GetOffset()+uint64(len(r.rest)), nil
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

func (r *logReader) next() (*agboxv1.ExecLogChunk, error) {
	if r.stream == nil {
		stream, err := r.client.raw.ReadExecLog(r.ctx, proto.CloneOf(r.req))
		if err != nil {
			return nil, err
		}
		r.stream = stream
	}
	return r.stream.Recv()
}
