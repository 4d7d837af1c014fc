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
	conn    *grpc.ClientConn
	socket  string
	others  []string              // tried where nobody listens on socket
	dialing atomic.Pointer[error] // how the last attempt to connect ended
	broken  func(error)
}

// Option changes how Dial connects.
type Option func(*Client)

// WithSocket makes Dial use this socket instead of SocketPath's.
func WithSocket(path string) Option {
	return func(c *Client) { c.socket = path }
}

// WithBrokenStream has f called each time that Resume or Follow lost the daemon and before it tries again, from their
// caller's goroutine; f must not block.
func WithBrokenStream(f func(error)) Option {
	return func(c *Client) { c.broken = f }
}

// Dial prepares a client; it connects with the first call and again whenever the connection was
// lost, so a daemon need not run yet. Close must follow.
func Dial(opts ...Option) (*Client, error) {
	c := &Client{broken: func(error) {}}
	for _, opt := range opts {
		opt(c)
	}
	if c.socket == "" {
		path, err := SocketPath()
		if err != nil {
			return nil, err
		}
		c.socket = path
		c.others = otherSocketPaths(runtime.GOOS, os.Getuid(), os.Getenv, isDir)
	}
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	conn, err := grpc.NewClient("passthrough:///agboxd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(c.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithChainUnaryInterceptor(c.typeUnary),
		grpc.WithChainStreamInterceptor(c.typeStream),
	)
	if err != nil {
		return nil, err
	}
	c.conn, c.SandboxServiceClient = conn, agboxv1.NewSandboxServiceClient(conn)
	return c, nil
}

// Socket returns the path of the socket that the client connects to.
func (c *Client) Socket() string { return c.socket }

// Close ends the connection; calls and streams in flight fail.
func (c *Client) Close() error { return c.conn.Close() }

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

func (c *Client) typeUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return c.typed(invoke(ctx, method, req, reply, conn, opts...))
}

func (c *Client) typeStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	return typedStream{stream, c}, c.typed(err)
}

// typedStream fails with io.EOF, else with an *Error.
type typedStream struct {
	grpc.ClientStream
	client *Client
}

func (s typedStream) SendMsg(m any) error { return s.client.typed(s.ClientStream.SendMsg(m)) }
func (s typedStream) RecvMsg(m any) error { return s.client.typed(s.ClientStream.RecvMsg(m)) }
