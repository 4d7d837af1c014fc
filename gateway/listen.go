package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits on clients. Bodies have none of their own here: whoever reads them bounds them.
const (
	maxConnections = 2048
	// maxUnproven is how many connections may be open that have shown no token.
	maxUnproven = 256
	// headerTime is how long a client may take for the TLS handshake, and for a request's headers.
	headerTime = 10 * time.Second
	// idleTime is how long a connection may lie unused.
	idleTime = 5 * time.Minute
	// pingAfter and pingTime are when a silent HTTP/2 connection is asked whether it still is one, and for how long.
	pingAfter = 30 * time.Second
	pingTime  = 20 * time.Second
	// maxStreams are the calls that one HTTP/2 connection may have under way.
	maxStreams = 1024
	maxHeaders = 64 << 10
	// maxControlBody bounds a request to E2B's control plane.
	maxControlBody = 1 << 20
)

// ErrUnsafe reports a configuration that would let strangers in, or read along.
var ErrUnsafe = errors.New("gateway: unsafe")

func listen(config Config) (*doors, error) {
	listener, address, err := config.listener()
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot listen on %q: %w", config.Listen, err)
	}
	if !address.IP.IsLoopback() && !config.TLS.Enabled() {
		return nil, fmt.Errorf("%w: on %s others would read tokens on the wire: give --tls-cert and --tls-key, or --tls-self-signed, or listen on 127.0.0.1", ErrUnsafe, address)
	}
	var secure *tls.Config
	if config.TLS.Enabled() {
		if secure, err = config.TLS.config(); err != nil {
			return nil, err
		}
		secure.NextProtos = []string{"h2", "http/1.1"}
	}
	if listener == nil {
		if listener, err = net.ListenTCP("tcp", address); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	d := &doors{open: map[*door]struct{}{}, near: address.IP.IsLoopback() && secure == nil}
	d.Listener = &thresholds{netutil.LimitListener(listener, maxConnections), d}
	if d.secure = secure; secure != nil {
		d.Listener = &tlsDoors{d.Listener, secure}
	}
	return d, nil
}

// listener is the one that was given, if any, and where it listens or is to listen.
func (c Config) listener() (net.Listener, *net.TCPAddr, error) {
	if c.Listener == nil {
		address, err := net.ResolveTCPAddr("tcp", c.Listen)
		return nil, address, err
	}
	address, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, nil, errors.New("it is no TCP")
	}
	return c.Listener, address, nil
}

// tlsDoors is tls.NewListener; the connections stay ones that net/http knows.
type tlsDoors struct {
	net.Listener
	config *tls.Config
}

func (t *tlsDoors) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(conn, t.config), nil
}

// doors know which connections have shown a token. Of those that have not, the one that waits longest goes when there are too
// many.
type doors struct {
	net.Listener
	secure *tls.Config
	near   bool // on loopback in the clear, where a browser of this machine may be sent by any page

	mu   sync.Mutex
	open map[*door]struct{} // unproven
}

// door is one connection.
type door struct {
	conn   net.Conn
	since  time.Time
	busy   bool
	doors  *doors
	proven sync.Once
}

type doorKey struct{}

// enter is called for each connection, before its first request.
func (d *doors) enter(ctx context.Context, conn net.Conn) context.Context {
	one := &door{conn: conn, since: time.Now(), doors: d}
	d.mu.Lock()
	d.open[one] = struct{}{}
	var evicted net.Conn
	if len(d.open) > maxUnproven {
		evicted = d.evict()
	}
	d.mu.Unlock()
	if evicted != nil {
		_ = evicted.Close()
	}
	return context.WithValue(ctx, doorKey{}, one)
}

// evict returns the oldest unproven connection that is not being answered, else the oldest, for the caller to close.
func (d *doors) evict() net.Conn {
	var oldest *door
	for one := range d.open {
		if oldest == nil || oldest.busy && !one.busy || oldest.busy == one.busy && one.since.Before(oldest.since) {
			oldest = one
		}
	}
	delete(d.open, oldest)
	return wire(oldest.conn) // without TLS's goodbye, which may block
}

func wire(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// thresholds tell the doors of each connection that closes. net/http tells of none that was hijacked, as WebSockets are.
type thresholds struct {
	net.Listener
	doors *doors
}

func (t *thresholds) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &threshold{conn, t.doors}, nil
}

type threshold struct {
	net.Conn
	doors *doors
}

func (t *threshold) Close() error {
	t.doors.mu.Lock()
	for one := range t.doors.open {
		if wire(one.conn) == net.Conn(t) {
			delete(t.doors.open, one)
		}
	}
	t.doors.mu.Unlock()
	return t.Conn.Close()
}

// changed follows what net/http does with a connection, until that closes.
func (d *doors) changed(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.open {
		if one.conn != conn {
			continue
		}
		switch state {
		case http.StateActive:
			one.busy = true
		case http.StateIdle:
			one.busy = false
		}
	}
}

// proven notes that the connection of a request has shown a secret.
func proven(ctx context.Context) {
	if one, ok := ctx.Value(doorKey{}).(*door); ok {
		one.proven.Do(func() {
			one.doors.mu.Lock()
			defer one.doors.mu.Unlock()
			delete(one.doors.open, one)
		})
	}
}

func (g *Gateway) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(!g.config.TLS.Enabled())
	return &http.Server{
		Handler: g, Protocols: protocols, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaders,
		TLSConfig: g.listener.secure, ConnContext: g.listener.enter, ConnState: func(conn net.Conn, state http.ConnState) {
			g.listener.changed(conn, state)
			g.meter.changed(conn, state)
		},
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTime},
		ErrorLog: slog.NewLogLogger(g.config.Log.Handler(), slog.LevelDebug),
	}
}
