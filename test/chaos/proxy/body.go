package proxy

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// reply is where a reply goes to. It can be flushed by the one who copies it and by a fault.
type reply struct {
	http.ResponseWriter
	mu sync.Mutex
}

func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *reply) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseWriter.Write(data)
}

func (r *reply) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// broken is a reply's body that the fault happens to once n bytes have passed, or at the body's end if that comes
// first.
type broken struct {
	io.ReadCloser
	ctx   context.Context
	to    *reply
	fault Fault
	left  int64
	done  bool
}

// middle makes the fault happen in body, which may be both ways of an upgraded connection.
func (f Fault) middle(ctx context.Context, body io.ReadCloser, to *reply) io.ReadCloser {
	b := &broken{ReadCloser: body, ctx: ctx, to: to, fault: f, left: f.bytes}
	if writer, ok := body.(io.Writer); ok {
		return struct {
			*broken
			io.Writer
		}{b, writer}
	}
	return b
}

func (b *broken) Read(buffer []byte) (int, error) {
	if b.done {
		return b.ReadCloser.Read(buffer)
	}
	if b.left == 0 {
		return b.strike(buffer)
	}
	n, err := b.ReadCloser.Read(buffer[:min(int64(len(buffer)), b.left)])
	b.left -= int64(n)
	if err == io.EOF {
		b.left, err = 0, nil
	}
	return n, err
}

func (b *broken) strike(buffer []byte) (int, error) {
	b.done = true
	_ = b.to.FlushError() // not there for a connection that was upgraded, which holds nothing back
	if b.fault.do(b.ctx).drop {
		return 0, errCut
	}
	return b.ReadCloser.Read(buffer)
}
