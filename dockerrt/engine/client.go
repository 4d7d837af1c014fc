// Package engine is the way to a container engine: its client with deadlines, retries and errors, and the names and labels by
// which objects are found to be ours. It decides nothing about sandboxes.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// Limits on calls. An engine under a burst of creates takes seconds, never minutes; a call that takes longer hangs.
const (
	ReadTimeout  = 20 * time.Second
	WriteTimeout = 2 * time.Minute
)

// Owner is whose the objects are that a client makes.
type Owner struct {
	// Instance names the owner of every object: one data directory, for ever.
	Instance string
	// PID and Started tell this process from earlier ones with the same instance.
	PID     int
	Started time.Time
}

// Client talks to one engine. Use Connect. It is safe for concurrent use.
type Client struct {
	*client.Client
	owner  Owner
	closed context.Context
	close  context.CancelFunc

	mu        sync.Mutex
	primaries map[string]string // ids by the id that the sandbox's objects have, as far as they were looked for
	// places are those of sandboxes that took one, tenants the same the other way round.
	places, tenants map[string]string
}

// Connect finds the engine at host, "" for where the environment says, as Docker's own tools do, and agrees with it on a version
// of the API (20.10 and newer are served). It fails with runtime.ErrUnreachable when none answers, saying what to do.
func Connect(ctx context.Context, host string, owner Owner) (*Client, error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, fmt.Errorf("dockerrt: bad docker host %q: %w", host, err)
	}
	c := New(api, owner)
	ctx, cancel := c.Read(ctx)
	defer cancel()
	_, err = api.Ping(ctx)
	switch {
	case forbidden(err):
		err = fmt.Errorf("%w at %s: it may be running, but this user may not use it: %w: add the user to the group that owns the socket "+
			"(for Docker's own: usermod -aG docker USER, the group docker, and log in again), or name another engine with DOCKER_HOST",
			runtime.ErrUnreachable, api.DaemonHost(), err)
	case err != nil:
		err = fmt.Errorf("%w at %s: %w: start it (systemctl start docker, or dockerd), or name another with DOCKER_HOST",
			runtime.ErrUnreachable, api.DaemonHost(), err)
	default:
		return c, nil
	}
	return nil, errors.Join(err, c.Close())
}

// New returns a client by way of api, which it takes over.
func New(api *client.Client, owner Owner) *Client {
	c := &Client{Client: api, owner: owner, primaries: map[string]string{}, places: map[string]string{}, tenants: map[string]string{}}
	c.closed, c.close = context.WithCancel(context.Background())
	return c
}

// Measure has all that goes to the engine go by way of what wrap returns, but for what takes a connection over. It comes before use.
func (c *Client) Measure(wrap func(http.RoundTripper) http.RoundTripper) error {
	by := c.HTTPClient()
	by.Transport = wrap(by.Transport)
	return client.WithHTTPClient(by)(c.Client)
}

// forbidden: the client's errors do not always wrap the system's.
func forbidden(err error) bool {
	return err != nil && (errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "permission denied"))
}

// Abort cuts off what Write has under way.
func (c *Client) Abort() { c.close() }

// Close is Abort, and lets go of the engine.
func (c *Client) Close() error {
	c.close()
	return c.Client.Close()
}

// Closed ends with Abort.
func (c *Client) Closed() context.Context { return c.closed }

// Instance is the owner's.
func (c *Client) Instance() string { return c.owner.Instance }

// Started is when the process of the owner began.
func (c *Client) Started() time.Time { return c.owner.Started }

// Read bounds calls that change nothing.
func (c *Client) Read(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, ReadTimeout)
}

// Write is for calls that change something. They are not given up when ctx ends: the engine would go on with them, and
// what is removed next would come back to life. Only Close cuts them off.
func (c *Client) Write(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.Bound(ctx, WriteTimeout)
}

// Bound is Write with a limit of its own.
func (c *Client) Bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(c.closed, cancel)
	return ctx, func() { stop(); cancel() }
}
