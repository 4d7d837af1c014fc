package servertest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/test/dockertest"
)

// Proxied returns the address of a proxy to the engine, which first asks intercept, and what takes the proxy away. intercept
// reports whether it has answered itself.
func Proxied(t *testing.T, intercept func(http.ResponseWriter, *http.Request) bool) (host string, leave func()) {
	t.Helper()
	engine := dockertest.Engine(t)
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return engine.Dialer()(ctx) }}
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" }}
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !intercept(w, r) {
			forward.ServeHTTP(w, r)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		proxy.Close()
		<-served
		transport.CloseIdleConnections()
	}
	t.Cleanup(leave)
	return "unix://" + listener.Addr().String(), leave
}
