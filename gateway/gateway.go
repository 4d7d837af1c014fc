// Package gateway serves agboxd to programs that speak something else than gRPC on its Unix socket, or are elsewhere: E2B's
// SDKs, gRPC over TLS, browsers that want a port of a sandbox. It is a client of the daemon's wire and nothing else. Who may do
// what, package access decides, for all of them alike.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/felixge/httpsnoop"
	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/gateway/envd"
	"github.com/agbox-dev/agbox/gateway/ports"
	"github.com/agbox-dev/agbox/gateway/route"
)

// DefaultListen is where a gateway listens that is told nothing else.
const DefaultListen = "127.0.0.1:7439"

// Config is what a gateway has to be told.
type Config struct {
	// Listen is HOST:PORT. An address that is not loopback needs TLS.
	Listen string
	// Listener, unless nil, is used instead, by the same rules. Close closes it.
	Listener net.Listener
	// Domain ends the names of sandboxes' ports, <port>-<id>.<Domain>; "" is localhost.
	Domain string
	TLS    TLS
	// Templates are what E2B's clients may create by an alias: base is what they take who name none.
	Templates map[string]e2b.Template
	// Tokens decide who is let in.
	Tokens *access.Tokens
	// Log gets what the gateway does, and a line for each call that changes something or was refused.
	Log *slog.Logger
}

// Gateway is one listener. Run serves it.
type Gateway struct {
	config   Config
	access   *access.Access
	listener *doors
	server   *http.Server
	grpc     *proxy
	handlers handlers
	guesses  guesses
	meter    *meter
	plane    *e2b.Handler
	ports    *ports.Handler
	builds   *build.Builds
	boxes    *envd.Handler
	serving  serving
}

// serving counts the requests that are being answered, until there are to be none.
type serving struct {
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
	// over ends with the gateway, and with it what net/http has let go of.
	over context.Context
	end  context.CancelFunc
}

func (s *serving) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Add(1)
	}
	return !s.closed
}

// close has no request let in from now on, and those that are in told to end.
func (s *serving) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.end()
}

// handlers answer what the gateway passes on. To those of a sandbox's port it passes on everything, with its route.Target and
// nobody's identity: who may use it they decide. The others get an access.Identity.
type handlers struct {
	envd  http.Handler // a sandbox's data plane of E2B
	ports http.Handler // any other port of a sandbox
	e2b   http.Handler // E2B's control plane
}

// New listens, and refuses what would not be safe. conn is the daemon; it stays the caller's. Run or Close must follow.
func New(config Config, conn grpc.ClientConnInterface) (*Gateway, error) {
	if config.Listen == "" {
		config.Listen = DefaultListen
	}
	if config.Domain == "" {
		config.Domain = "localhost"
	}
	decides, err := access.New(config.Tokens, conn, config.Log)
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: config, access: decides, guesses: guesses{waiting: make(chan struct{}, maxWaiting)}, meter: newMeter()}
	g.serving.over, g.serving.end = context.WithCancel(context.Background())
	g.grpc = newProxy(decides)
	if g.listener, err = listen(config); err != nil {
		return nil, err
	}
	g.server = g.newServer()
	if g.plane, err = g.control(conn); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.boxes, g.ports = g.data(conn), g.inside(conn)
	g.handlers.e2b, g.handlers.envd, g.handlers.ports = g.plane, g.boxes, g.ports
	return g, nil
}

// Address is where the gateway listens.
func (g *Gateway) Address() net.Addr { return g.listener.Addr() }

// URL is where clients on this machine find it.
func (g *Gateway) URL() string {
	scheme := "http"
	if g.config.TLS.Enabled() {
		scheme = "https"
	}
	return scheme + "://" + g.Address().String()
}

// Access is what decides about calls, for tests of those who serve them.
func (g *Gateway) Access() *access.Access { return g.access }

// farewell is how long Run lets requests end that are being answered, when its context has ended.
const farewell = time.Second

// Run serves until the context ends, and returns when nothing is served any more. Streams that are open then are cut: their
// clients come back.
func (g *Gateway) Run(ctx context.Context) error {
	var serving sync.WaitGroup
	ended := make(chan error, 1)
	serving.Go(func() { ended <- g.server.Serve(g.listener) })
	defer serving.Wait()
	defer g.Close()
	select {
	case err := <-ended:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("gateway: %w", err)
	case <-ctx.Done():
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := g.server.Shutdown(leave); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// Close ends everything at once, and returns when nothing of it is left.
func (g *Gateway) Close() error {
	g.serving.close()
	err := errors.Join(g.server.Close(), g.listener.Close())
	g.grpc.Stop()
	g.serving.work.Wait()
	g.grpc.apart.Wait()
	if g.plane != nil {
		g.plane.Close()
	}
	if g.ports != nil {
		g.ports.Close()
	}
	if g.builds != nil {
		g.builds.Close()
	}
	if g.boxes != nil {
		g.boxes.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ServeHTTP passes a request on to whoever answers it, and measures that.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.serving.enter() {
		panic(http.ErrAbortHandler)
	}
	defer g.serving.work.Done()
	plane := ""
	answered := httpsnoop.CaptureMetrics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { plane = g.pass(w, r) }), w, r)
	g.meter.request(plane, answered)
}

// pass returns the name of the plane that has answered.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) (plane string) {
	ctx, cancel := context.WithCancel(access.WithPeer(r.Context(), r.RemoteAddr))
	defer cancel()
	defer context.AfterFunc(g.serving.over, cancel)()
	if r.URL.Path != "/healthz" && r.URL.Path != "/health" && g.listener.near && !route.Ours(r.Host, g.config.Domain) {
		route.Refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("this gateway is not at %.200q: if a proxy is in front of it, start it with --domain", r.Host))
		return "own"
	}
	target, found, err := route.Of(r, g.config.Domain)
	if secret := r.Header.Get("X-Access-Token"); secret != "" && target.Sandbox != "" && g.access.IsSandboxToken(target.Sandbox, secret) {
		proven(ctx)
	}
	switch {
	case err != nil:
		route.Refuse(w, http.StatusBadRequest, strings.TrimPrefix(err.Error(), "route: "))
	case found && target.Port == route.EnvdPort:
		g.handlers.envd.ServeHTTP(w, r.WithContext(route.With(ctx, target)))
		return "envd"
	case found:
		g.handlers.ports.ServeHTTP(w, r.WithContext(route.With(ctx, target)))
		return "ports"
	case r.URL.Path == "/healthz":
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintln(w, "ok")
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		g.serveGRPC(w, r.WithContext(ctx))
		return "grpc"
	case r.URL.Path == "/health": // E2B's clients ask it without a token
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, e2b.UploadPath): // signed in place of a token
		g.handlers.e2b.ServeHTTP(w, r.WithContext(ctx))
		return "e2b"
	case r.URL.Path == "/metrics":
		g.serveKnown(w, r.WithContext(ctx))
	default:
		g.serveKnown(w, r.WithContext(ctx))
		return "e2b"
	}
	return "own"
}

// serveKnown serves what only holders of a token may ask.
func (g *Gateway) serveKnown(w http.ResponseWriter, r *http.Request) {
	ctx, err := g.identified(r)
	switch {
	case errors.Is(err, errGuessing):
		w.Header().Set("Connection", "close")
		route.Refuse(w, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, access.ErrNoToken), errors.Is(err, access.ErrToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		route.Refuse(w, http.StatusUnauthorized, strings.TrimPrefix(err.Error(), "access: "))
	case err != nil:
		g.config.Log.Error("cannot tell who is who", slog.Any("error", err))
		route.Refuse(w, http.StatusInternalServerError, "the gateway cannot read its tokens: see its log")
	case r.URL.Path == "/metrics":
		g.serveMetrics(w, r.WithContext(ctx))
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxControlBody)
		g.handlers.e2b.ServeHTTP(w, r.WithContext(ctx))
	}
}

// identified returns the request's context with who sent it.
func (g *Gateway) identified(r *http.Request) (context.Context, error) {
	id, err := g.access.Authenticate(r)
	if err != nil {
		if errors.Is(err, access.ErrToken) {
			g.meter.refused.Inc()
			g.config.Log.Info("token refused", slog.String("from", r.RemoteAddr), slog.String("path", fmt.Sprintf("%.200s", r.URL.Path)))
			if slow := g.guesses.slow(r.Context(), r.RemoteAddr); slow != nil {
				return nil, slow
			}
		}
		return nil, err
	}
	proven(r.Context())
	return access.With(r.Context(), id), nil
}
