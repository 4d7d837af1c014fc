package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// DialPort connects to a TCP port that something in the sandbox listens on, on its localhost or all addresses. Nothing has to be
// published for it. ctx is for the connecting only. Errors: ErrPortClosed where nothing listens, ErrSandboxNotReady where the sandbox
// does not run, unless its spec has Wake. The connection has no deadlines (os.ErrNoDeadline); while it lasts the sandbox is not
// idle, and with the sandbox it ends.
func (c *Client) DialPort(ctx context.Context, sandboxID string, port uint16) (net.Conn, error) {
	life, cancel := context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stream, err := c.raw.DialPort(life)
	if err == nil {
		err = stream.Send(&agboxv1.DialPortRequest{SandboxId: sandboxID, Port: uint32(port)})
		if err == nil || errors.Is(err, io.EOF) { // the stream's own error is what its end tells
			_, err = stream.Recv()
		}
	}
	if !stop() || err != nil {
		cancel(nil)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &portConn{stream: stream, cancel: cancel, address: portAddr{sandboxID, port}}, nil
}

// portChunk is how many bytes a message has at most.
const portChunk = 32 << 10

type portConn struct {
	stream interface {
		Send(*agboxv1.DialPortRequest) error
		Recv() (*agboxv1.DialPortResponse, error)
	}
	cancel  context.CancelCauseFunc
	address portAddr

	reading sync.Mutex
	rest    []byte
	over    error

	writing sync.Mutex
	ended   bool
}

// Read is that of net.Conn.
func (p *portConn) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	for len(p.rest) == 0 && p.over == nil {
		m, err := p.stream.Recv()
		switch {
		case err != nil:
			p.over = err
		case m.GetEnd():
			p.rest, p.over = m.GetData(), io.EOF
		default:
			p.rest = m.GetData()
		}
	}
	if len(p.rest) == 0 {
		return 0, p.over
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write is that of net.Conn.
func (p *portConn) Write(b []byte) (n int, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.ended {
		return 0, net.ErrClosed
	}
	for len(b) > 0 {
		part := b[:min(len(b), portChunk)]
		if err := p.stream.Send(&agboxv1.DialPortRequest{Data: part}); err != nil {
			return n, p.broken(err)
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// CloseWrite tells the other side that no more comes; reading goes on.
func (p *portConn) CloseWrite() error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	if err := p.stream.Send(&agboxv1.DialPortRequest{End: true}); err != nil {
		return p.broken(err)
	}
	return nil
}

// broken has io.EOF, which is how gRPC says that a stream has ended, not look like an orderly end.
func (p *portConn) broken(err error) error {
	if errors.Is(err, io.EOF) {
		return net.ErrClosed
	}
	return err
}

// Close is that of net.Conn.
func (p *portConn) Close() error {
	p.cancel(net.ErrClosed)
	return nil
}

func (p *portConn) LocalAddr() net.Addr              { return portAddr{} }
func (p *portConn) RemoteAddr() net.Addr             { return p.address }
func (p *portConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (p *portConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p *portConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// portAddr is a port of a sandbox.
type portAddr struct {
	sandbox string
	port    uint16
}

func (portAddr) Network() string  { return "agbox" }
func (a portAddr) String() string { return fmt.Sprintf("%s:%d", a.sandbox, a.port) }
