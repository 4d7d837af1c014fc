// Package raw is the wire contract of agboxd as a Go client: one method for each RPC, requests and
// responses as they travel, errors typed. Nothing waits, retries or is remembered here, except in
// Follow, which keeps a subscription going over a restart of the daemon. Package sdk is what most
// programs want.
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

// Client is a connection to one daemon. It is safe for concurrent use. Each method returns an
// *Error when it fails, and nothing but the context bounds its time.
type Client struct {
	conn    *grpc.ClientConn
	rpc     agboxv1.SandboxServiceClient
	socket  string
	others  []string              // tried where nobody listens on socket
	dialing atomic.Pointer[error] // how the last attempt to connect ended
}

// Option changes how Dial connects.
type Option func(*Client)

// WithSocket makes Dial use this socket instead of SocketPath's.
func WithSocket(path string) Option {
	return func(c *Client) { c.socket = path }
}

// Dial prepares a client; it connects with the first call and again whenever the connection was
// lost, so a daemon need not run yet. Close must follow.
func Dial(opts ...Option) (*Client, error) {
	c := &Client{}
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
		grpc.WithChainUnaryInterceptor(c.intercept),
	)
	if err != nil {
		return nil, err
	}
	c.conn, c.rpc = conn, agboxv1.NewSandboxServiceClient(conn)
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

func (c *Client) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return c.typed(invoke(ctx, method, req, reply, conn, opts...))
}

// Ping asks the daemon for its name and version.
func (c *Client) Ping(ctx context.Context, req *agboxv1.PingRequest) (*agboxv1.PingResponse, error) {
	return c.rpc.Ping(ctx, req)
}

// CreateSandbox returns when the sandbox is accepted, which is before it is READY.
func (c *Client) CreateSandbox(ctx context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	return c.rpc.CreateSandbox(ctx, req)
}

// GetSandbox returns the sandbox as it is, with the sequence from which a subscription continues.
func (c *Client) GetSandbox(ctx context.Context, req *agboxv1.GetSandboxRequest) (*agboxv1.GetSandboxResponse, error) {
	return c.rpc.GetSandbox(ctx, req)
}

// ListSandboxes returns the sandboxes that carry all labels given, newest first.
func (c *Client) ListSandboxes(ctx context.Context, req *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	return c.rpc.ListSandboxes(ctx, req)
}

// ResumeSandbox returns when the resume of a STOPPED sandbox is accepted.
func (c *Client) ResumeSandbox(ctx context.Context, req *agboxv1.ResumeSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.ResumeSandbox(ctx, req)
}

// StopSandbox returns when the stop of a READY sandbox is accepted.
func (c *Client) StopSandbox(ctx context.Context, req *agboxv1.StopSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.StopSandbox(ctx, req)
}

// DeleteSandbox returns when the deletion is accepted; it is from every state.
func (c *Client) DeleteSandbox(ctx context.Context, req *agboxv1.DeleteSandboxRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.DeleteSandbox(ctx, req)
}

// DeleteSandboxes accepts the deletion of all sandboxes that carry the labels; an empty selector is
// refused.
func (c *Client) DeleteSandboxes(ctx context.Context, req *agboxv1.DeleteSandboxesRequest) (*agboxv1.DeleteSandboxesResponse, error) {
	return c.rpc.DeleteSandboxes(ctx, req)
}

// CreateExec returns when the command is accepted, with the host paths of its output.
func (c *Client) CreateExec(ctx context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	return c.rpc.CreateExec(ctx, req)
}

// CancelExec returns when the cancellation of a running exec is accepted.
func (c *Client) CancelExec(ctx context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	return c.rpc.CancelExec(ctx, req)
}

// GetExec returns the exec as it is, with the sandbox's sequence from which a subscription continues.
func (c *Client) GetExec(ctx context.Context, req *agboxv1.GetExecRequest) (*agboxv1.GetExecResponse, error) {
	return c.rpc.GetExec(ctx, req)
}

// ListActiveExecs returns the running execs, of one sandbox where the request names it.
func (c *Client) ListActiveExecs(ctx context.Context, req *agboxv1.ListActiveExecsRequest) (*agboxv1.ListActiveExecsResponse, error) {
	return c.rpc.ListActiveExecs(ctx, req)
}
