// Package raw is the wire contract of agboxd as a Go client: the generated one, whose requests and responses travel as
// they are, with errors typed and streams that can be closed. Nothing waits, retries or is remembered here, except in Resume
// and Follow, which keep at it over a restart of the daemon. Package sdk is what most programs want.
package raw

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Responses hold whole lists, so the bound on one is far above gRPC's default.
const maxResponse = 256 << 20

// Client is a connection to one daemon. It is safe for concurrent use. Each call returns an *Error when it fails, and
// nothing but the context bounds its time.
type Client struct {
	agboxv1.SandboxServiceClient
	conn    grpc.ClientConnInterface
	close   func() error
	socket  string
	others  []string // tried where nobody listens on socket
	host    *host    // instead of a socket
	remote  bool
	dialing atomic.Pointer[error] // how the last attempt to connect ended
	broken  func(error)
}

// Option changes how Dial connects.
type Option func(*Client) error

// WithSocket makes Dial use this socket instead of SocketPath's, and no other host.
func WithSocket(path string) Option {
	return func(c *Client) error { c.socket, c.host = path, nil; return nil }
}

// WithBrokenStream has f called each time that Resume or Follow lost the daemon and before it tries again, from their
// caller's goroutine; f must not block.
func WithBrokenStream(f func(error)) Option {
	return func(c *Client) error { c.broken = f; return nil }
}

func newClient(opts []Option) (*Client, error) {
	c := &Client{broken: func(error) {}, close: func() error { return nil }}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Dial prepares a client; it connects with the first call and again whenever the connection was
// lost, so a daemon need not run yet. Close must follow.
func Dial(opts ...Option) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	target, dialing := "passthrough:///agboxd", []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.dial)}
	switch {
	case c.host != nil:
		c.remote = true
		if target, dialing, err = c.host.dialing(c); err != nil {
			return nil, err
		}
	case c.socket == "":
		if c.socket, err = SocketPath(); err != nil {
			return nil, err
		}
		c.others = otherSocketPaths(runtime.GOOS, os.Getuid(), os.Getenv, isDir)
	}
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	conn, err := grpc.NewClient(target, append(dialing,
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
	)...)
	if err != nil {
		return nil, err
	}
	c.over(conn)
	c.close = conn.Close
	return c, nil
}

// Over is a client of whoever answers on a connection that the caller has and keeps: Close leaves it open. Paths that are told
// are taken as another machine's.
func Over(conn grpc.ClientConnInterface, opts ...Option) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	c.remote = true
	c.over(conn)
	return c, nil
}

func (c *Client) over(conn grpc.ClientConnInterface) {
	c.conn, c.SandboxServiceClient = conn, agboxv1.NewSandboxServiceClient(typedConn{conn, c})
}

// Conn is the connection itself, whose errors are the statuses that the daemon sent.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Remote reports whether the daemon may be on another machine, so that what it says of files is not about those here.
func (c *Client) Remote() bool { return c.remote }

// Socket returns the path of the socket that the client connects to; "" where it does not know one.
func (c *Client) Socket() string { return c.socket }

// Address is where the daemon is looked for: a socket's path, or a URL.
func (c *Client) Address() string {
	if c.host != nil {
		return c.host.url.Redacted()
	}
	return c.socket
}

// Close ends the connection; calls and streams in flight fail.
func (c *Client) Close() error { return c.close() }

func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	for _, other := range c.others {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if found, otherErr := new(net.Dialer).DialContext(ctx, "unix", other); otherErr == nil {
			conn, err = found, nil
		}
	}
	c.dialing.Store(&err)
	return conn, err
}

// DialSocket connects to the daemon's socket on this machine, whatever the environment says of others.
func DialSocket(ctx context.Context) (net.Conn, error) {
	path, err := SocketPath()
	if err != nil {
		return nil, err
	}
	c := &Client{socket: path, others: otherSocketPaths(runtime.GOOS, os.Getuid(), os.Getenv, isDir)}
	conn, err := c.dial(ctx, "")
	if err != nil {
		return nil, errors.New(c.unavailable(err.Error()))
	}
	return conn, nil
}

// typedConn fails with an *Error.
type typedConn struct {
	grpc.ClientConnInterface
	client *Client
}

func (t typedConn) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return t.client.typed(t.ClientConnInterface.Invoke(ctx, method, request, reply, opts...))
}

func (t typedConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := t.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, t.client.typed(err)
	}
	return typedStream{stream, t.client}, nil
}

// typedStream fails with io.EOF, else with an *Error.
type typedStream struct {
	grpc.ClientStream
	client *Client
}

func (s typedStream) SendMsg(m any) error { return s.client.typed(s.ClientStream.SendMsg(m)) }
func (s typedStream) RecvMsg(m any) error { return s.client.typed(s.ClientStream.RecvMsg(m)) }
