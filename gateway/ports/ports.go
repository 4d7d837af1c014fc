// Package ports has browsers and other clients reach what listens in a sandbox, at <port>-<sandbox>.<domain>: HTTP, WebSockets,
// streams and gRPC, without anything being published on a host.
package ports

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/gateway/bound"
	"github.com/agbox-dev/agbox/gateway/route"
	"github.com/agbox-dev/agbox/sdk"
)

// Config is what the ports of sandboxes need. Its functions may be called by several goroutines at once.
type Config struct {
	// Client is the daemon as far as the sandbox goes, whoever asks.
	Client func(sandboxID string) (*sdk.Client, error)
	// Token is what shows that its holder may use the sandbox's ports; whoever has All may, too.
	Token, All func(sandboxID string) string
	// Holder reports whether the request shows a token of the gateway that sees the sandbox.
	Holder func(r *http.Request, sandboxID string) bool
	// Proven is told of each request that has shown a token of the sandbox's private ports.
	Proven func(context.Context)
	// Known reports whether the request shows a token of the gateway, whatever that sees; also where that cannot be told.
	Known func(*http.Request) bool
	// Open says of a sandbox with these labels whether everybody may use its ports, and what Host its servers are to see, "" for
	// the one that was asked for; "${PORT}" in it is the port.
	Open func(labels map[string]string) (public bool, host string)
	// Wake has a sandbox go on that is to do so for a request of E2B's, and does nothing for others: a connection is what wakes them.
	Wake func(ctx context.Context, box sdk.Sandbox) error
	Log  *slog.Logger
}

// Handler serves requests whose context has a route.Target. Close it after use.
type Handler struct {
	config        Config
	plain, framed *http.Transport // the latter speaks HTTP/2 from the first byte on, as gRPC does
	conns         *bound.Bound
}

// How long the gateway keeps a connection into a sandbox for the next request, for which the sandbox counts as used, and how long a
// server may take to begin its answer: as long as its client waits.
const keepTime = 5 * time.Second

// New returns a handler.
func New(config Config) *Handler {
	h := &Handler{config: config, conns: bound.New(maxConns, maxBoxConns)}
	h.plain = &http.Transport{DialContext: h.dial, IdleConnTimeout: keepTime, MaxIdleConnsPerHost: 16, DisableCompression: true}
	h.framed = h.plain.Clone()
	h.framed.Protocols = new(http.Protocols)
	h.framed.Protocols.SetUnencryptedHTTP2(true)
	return h
}

// Close lets go of the connections that nobody uses.
func (h *Handler) Close() {
	h.plain.CloseIdleConnections()
	h.framed.CloseIdleConnections()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, _ := route.From(r.Context())
	client, err := h.config.Client(target.Sandbox)
	if err != nil {
		refuse(w, target, http.StatusBadGateway, "the gateway cannot reach the daemon")
		return
	}
	box, err := client.GetSandbox(r.Context(), target.Sandbox)
	if err != nil {
		h.failed(w, r, target, err)
		return
	}
	public, host := h.config.Open(box.Labels)
	if !public {
		switch h.shown(w, r, target) {
		case refused:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, target, http.StatusForbidden, "this port is private: show its token, in the header "+HeaderToken+", or once in the address as ?"+queryToken+"=")
			return
		case answered:
			return
		}
		h.config.Proven(r.Context())
	}
	if err := h.config.Wake(r.Context(), box); err != nil {
		h.failed(w, r, target, err)
		return
	}
	if box.State == sdk.StatePaused { // a connection kept from before wakes nobody
		conn, err := client.DialPort(r.Context(), target.Sandbox, target.Port)
		if err != nil {
			h.failed(w, r, target, err)
			return
		}
		conn.Close()
	}
	h.proxy(target, host).ServeHTTP(w, r)
}

// proxy passes a request on, as it is but for what was meant for the gateway.
func (h *Handler) proxy(target route.Target, host string) *httputil.ReverseProxy {
	port := strconv.Itoa(int(target.Port))
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: net.JoinHostPort(target.Sandbox, port)})
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what Go does not parse
			p.Out.Host = p.In.Host
			if host != "" {
				p.Out.Host = strings.ReplaceAll(host, "${PORT}", port)
			}
			p.SetXForwarded()
			h.strip(p.Out, target.Sandbox)
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				return h.framed.RoundTrip(r)
			}
			return h.plain.RoundTrip(r)
		}),
		FlushInterval: -1, // streams are
		ErrorLog:      slog.NewLogLogger(h.config.Log.Handler(), slog.LevelDebug),
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { h.failed(w, r, target, err) },
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// failed answers that a sandbox's port cannot be reached, in the words that E2B's clients look for. One whose sandbox breaks off
// in the middle of an answer never gets here: its connection is cut.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, target route.Target, err error) {
	switch {
	case r.Context().Err() != nil: // nobody waits
		panic(http.ErrAbortHandler)
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", "1")
		refuse(w, target, http.StatusServiceUnavailable, "too many connections are open to sandboxes' ports: try again later")
	case errors.Is(err, sdk.ErrSandboxNotFound):
		refuse(w, target, http.StatusBadGateway, "The sandbox was not found")
	case errors.Is(err, sdk.ErrPortClosed):
		refuse(w, target, http.StatusBadGateway, "The sandbox is running but port is not open")
	case errors.Is(err, sdk.ErrSandboxNotReady):
		refuse(w, target, http.StatusBadGateway, "The sandbox is not running")
	default:
		h.config.Log.Info("port not reached", slog.String("sandbox_id", target.Sandbox), slog.Int("port", int(target.Port)), slog.Any("error", err))
		refuse(w, target, http.StatusBadGateway, "what listens on the port broke the connection, or is no HTTP server")
	}
}

// refuse answers as E2B's clients expect it of a port.
func refuse(w http.ResponseWriter, target route.Target, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A client that has left is told nothing.
	_ = json.NewEncoder(w).Encode(struct {
		Sandbox string `json:"sandboxId"`
		Message string `json:"message"`
		Port    uint16 `json:"port"`
		Code    int    `json:"code"`
	}{target.Sandbox, message, target.Port, status})
}
