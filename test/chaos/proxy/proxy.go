// Package proxy stands between agboxd and a Docker engine, tells which calls pass, and fails as it is told to:
// late replies, errors, dropped and cut connections, hangs, before or after the engine has done what was asked.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
)

// Proxy serves a Unix socket as if it were the engine's. Its methods may be called from any goroutine.
type Proxy struct {
	listen    string
	server    *http.Server
	transport *http.Transport
	rules     rules
	ledger    ledger
	ctx       context.Context
	cancel    context.CancelFunc
	serving   sync.WaitGroup
	served    error
}

// New serves the engine's Unix socket target at listen, a path that no file has or that a proxy left behind. The
// seed decides which calls a Rule with a Chance is about. Close it after use.
func New(target, listen string, seed uint64) (*Proxy, error) {
	if err := os.Remove(listen); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("proxy: cannot remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", listen)
	if err != nil {
		return nil, fmt.Errorf("proxy: cannot listen: %w", err)
	}
	p := &Proxy{listen: listen, rules: rules{seed: seed, done: map[string]int{}}, ledger: ledger{open: map[int]func(){}}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", target)
		},
		DisableCompression: true,
	}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ErrorLog: log.New(io.Discard, "", 0)}
	p.serving.Go(func() { p.served = p.server.Serve(listener) })
	return p, nil
}

// Host is the proxy's address as DOCKER_HOST takes it.
func (p *Proxy) Host() string { return "unix://" + p.listen }

// Close drops every connection and returns when none is served any more.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.server.Close()
	p.serving.Wait()
	p.ledger.close()
	p.transport.CloseIdleConnections()
	if !errors.Is(p.served, http.ErrServerClosed) {
		err = errors.Join(err, p.served)
	}
	return err
}

// serve forwards one call. Dropping it is http.ErrAbortHandler's work, as ReverseProxy's own when a body breaks.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	defer context.AfterFunc(p.ctx, cut)()
	call, ok := p.ledger.begin(r.Method, pathOf(r.URL.Path), cut)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer p.ledger.end(call)

	switch v := p.suffer(ctx, call, Before); {
	case v.drop || ctx.Err() != nil:
		panic(http.ErrAbortHandler)
	case v.status > 0:
		v.answer(w)
		return
	}
	to := &reply{ResponseWriter: w}
	forward := httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = "http", "docker", r.In.URL.RawQuery
		},
		FlushInterval:  -1,
		ModifyResponse: func(from *http.Response) error { return p.pass(ctx, call, from, to) },
		ErrorHandler:   refuse,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	forward.ServeHTTP(to, r.WithContext(ctx))
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // cut: the end of the body would look like a good one
	}
}

// suffered is an error reply on its way to refuse.
type suffered struct{ verdict }

func (suffered) Error() string { return "proxy: fault" }

// refuse answers for a reply that was made to fail; an engine that is not there is a dropped connection.
func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if s, ok := errors.AsType[suffered](err); ok && s.status > 0 {
		s.answer(w)
		return
	}
	panic(http.ErrAbortHandler)
}

// pass lets the engine's reply through, or not, or not whole.
func (p *Proxy) pass(ctx context.Context, call Call, from *http.Response, to *reply) error {
	if v := p.suffer(ctx, call, After); v.drop || v.status > 0 {
		return suffered{v}
	}
	p.ledger.tell(call, Body)
	if fault, found := p.rules.choose(call, Body); found {
		from.Body = fault.middle(ctx, from.Body, to)
	}
	return nil
}

func (p *Proxy) suffer(ctx context.Context, call Call, phase Phase) verdict {
	p.ledger.tell(call, phase)
	fault, found := p.rules.choose(call, phase)
	if !found {
		return verdict{}
	}
	return fault.do(ctx)
}
