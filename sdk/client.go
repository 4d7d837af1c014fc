// Package sdk drives agboxd from Go: sandboxes, commands in them, and the events that tell what
// happens, in plain Go types.
//
//	client, err := sdk.New()
//	box, err := client.CreateSandbox(ctx, sdk.Spec{Image: "debian:12"})
//	result, err := client.Run(ctx, box.ID, []string{"uname", "-a"})
//	err = client.Delete(ctx, box.ID)
//
// What takes time waits until it is done, unless WithWait(false) is given; only CreateExec does not
// wait unless told to. Waiting follows the sandbox's events and goes on over a restart of the
// daemon; the context ends it, but never what it waits for.
//
// Errors of the daemon are *Error and match the Err values with errors.Is.
package sdk

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"google.golang.org/grpc"
)

// Client talks to a daemon, that of the calling user unless said otherwise. It is safe for concurrent use.
type Client struct{ raw *raw.Client }

// Option changes what New returns.
type Option = raw.Option

// WithSocket uses this socket instead of the user's own.
func WithSocket(path string) Option { return raw.WithSocket(path) }

// WithBrokenStream has f called each time that a wait lost the daemon and before it tries again, from
// the goroutine that waits; f must not block.
func WithBrokenStream(f func(error)) Option { return raw.WithBrokenStream(f) }

// WithHost uses the daemon behind a gateway, https://HOST:PORT with its token, or the one of a user of a machine that is reached
// by ssh, ssh://USER@HOST, instead of the calling user's. ca is a PEM file of certificates to trust, such as that of a gateway
// that signs its own. token and ca may be "".
func WithHost(address, token, ca string) Option { return raw.WithHost(address, token, ca) }

// New returns a client; it connects with the first call, so the daemon need not run yet. Close must
// follow. Where AGBOX_HOST names another machine's daemon and no option does, it is WithHost with that, AGBOX_TOKEN and AGBOX_CA.
func New(opts ...Option) (*Client, error) {
	conn, err := raw.Dial(append([]Option{raw.FromEnvironment()}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Client{conn}, nil
}

// Over returns a client of whoever answers on conn, which stays the caller's: Close does not close it.
func Over(conn grpc.ClientConnInterface, opts ...Option) (*Client, error) {
	over, err := raw.Over(conn, opts...)
	if err != nil {
		return nil, err
	}
	return &Client{over}, nil
}

// Close ends the connection; what still waits fails.
func (c *Client) Close() error { return c.raw.Close() }

// Raw returns the connection itself, for what needs requests and responses as they travel. Close
// closes it.
func (c *Client) Raw() *raw.Client { return c.raw }

// Daemon is who answers on the socket.
type Daemon struct {
	Name    string
	Version string
}

// Ping asks the daemon who it is.
func (c *Client) Ping(ctx context.Context) (Daemon, error) {
	resp, err := c.raw.Ping(ctx, &agboxv1.PingRequest{})
	if err != nil {
		return Daemon{}, err
	}
	return Daemon{Name: resp.GetDaemon(), Version: resp.GetVersion()}, nil
}
