// Package gatewaytest is a gateway for tests, in front of any daemon: one on actorstest (sdktest.Start) or one on Docker
// (servertest.Start).
//
//	_, socket := sdktest.Start(t)
//	g := gatewaytest.Start(t, socket, access.Token{})
//	client := g.Client(g.Token)
package gatewaytest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// Gateway is one on loopback, with a token. It is as a gateway's own, so that its methods may be called from any goroutine.
type Gateway struct {
	*gateway.Gateway
	// Token is that of Start's, named test unless said otherwise.
	Token string
	// Tokens make others, and revoke.
	Tokens *access.Tokens

	t      testing.TB
	config gateway.Config
	kept   *os.File // the listening socket, which stays when the gateway goes
	daemon *raw.Client
	stop   func()
}

// Option changes what Start starts.
type Option func(*gateway.Config)

// WithTLS has the gateway sign its own certificate, which is CA.
func WithTLS() Option { return func(c *gateway.Config) { c.TLS.SelfSigned = true } }

// WithLog has the gateway's log written.
func WithLog(to io.Writer) Option {
	return func(c *gateway.Config) { c.Log = slog.New(slog.NewJSONHandler(to, nil)) }
}

// Start serves the daemon on the socket until the test ends, to who shows a token of these rights.
func Start(t testing.TB, socket string, token access.Token, opts ...Option) *Gateway {
	t.Helper()
	state := filepath.Join(t.TempDir(), "gateway")
	tokens, err := access.OpenTokens(state)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := raw.Dial(raw.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{t: t, Tokens: tokens, daemon: daemon, config: gateway.Config{
		Tokens: tokens, Log: slog.New(slog.DiscardHandler), TLS: gateway.TLS{Dir: state}}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.kept, err = listener.(*net.TCPListener).File()
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	for _, opt := range opts {
		opt(&g.config)
	}
	if token.Name == "" {
		token.Name = "test"
	}
	g.Token = g.NewToken(token)
	g.Up()
	t.Cleanup(func() {
		g.Down()
		daemon.Close()
		g.kept.Close()
	})
	return g
}

// NewToken makes one more token.
func (g *Gateway) NewToken(token access.Token) string {
	g.t.Helper()
	secret, err := g.Tokens.Add(token)
	if err != nil {
		g.t.Fatal(err)
	}
	return secret
}

// Down ends the gateway as a kill does for its clients: every connection breaks. Those that come then wait for the next one.
func (g *Gateway) Down() {
	if g.stop != nil {
		g.stop()
		g.stop = nil
	}
}

// Up serves again, where it was served before.
func (g *Gateway) Up() {
	g.t.Helper()
	var err error
	if g.config.Listener, err = net.FileListener(g.kept); err != nil {
		g.t.Fatal(err)
	}
	made, err := gateway.New(g.config, g.daemon.Conn())
	if err != nil {
		g.t.Fatal(err)
	}
	g.Gateway = made
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := made.Run(ctx); err != nil {
			g.t.Errorf("the gateway ended: %v", err)
		}
	})
	g.stop = func() {
		_ = made.Close() // serving says what went wrong
		cancel()
		serving.Wait()
	}
}

// CA is the certificate to trust, "" without TLS.
func (g *Gateway) CA() string {
	if path := g.config.TLS.SelfSignedFile(); g.config.TLS.SelfSigned {
		return path
	}
	return ""
}

// Client speaks gRPC with the token until the test ends.
func (g *Gateway) Client(token string) *sdk.Client {
	g.t.Helper()
	client, err := sdk.New(sdk.WithHost(g.URL(), token, g.CA()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { client.Close() })
	return client
}

// Environ is what a program finds the gateway by.
func (g *Gateway) Environ() []string {
	return append(os.Environ(), raw.EnvHost+"="+g.URL(), raw.EnvToken+"="+g.Token, raw.EnvCA+"="+g.CA(),
		"E2B_API_URL="+g.URL(), "E2B_SANDBOX_URL="+g.URL(), "E2B_API_KEY="+g.Token)
}
