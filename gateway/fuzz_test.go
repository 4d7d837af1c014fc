package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// FuzzStrangers: whatever a request without a token says, it is told that the gateway lives, or is refused.
func FuzzStrangers(f *testing.F) {
	_, socket := sdktest.Start(f)
	g := gatewaytest.Start(f, socket, access.Token{})
	f.Add("GET", "/v2/sandboxes", "127.0.0.1", "X-Api-Key", "e2b_00")
	f.Add("POST", "/agbox.v1.SandboxService/Ping", "127.0.0.1", "Content-Type", "application/grpc")
	f.Add("GET", "/files?signature=v1_x&path=/etc/passwd", "127.0.0.1", "Authorization", "Basic dXNlcjo=")
	f.Add("GET", "/../healthz", "8000-box1.localhost", "E2b-Sandbox-Id", "box1")
	f.Add("CONNECT", "//", "0-0.localhost", "Authorization", "Bearer")
	f.Fuzz(func(t *testing.T, method, path, host, header, value string) {
		at, err := url.ParseRequestURI(path)
		if err != nil || method == "" {
			return
		}
		r := (&http.Request{Method: method, URL: at, Host: host, Header: http.Header{}, Proto: "HTTP/2.0", ProtoMajor: 2, RemoteAddr: "127.0.0.1:1", Body: http.NoBody}).WithContext(t.Context())
		r.Header.Set(header, value)
		if r.Header.Get("X-Api-Key") != "" || r.Header.Get("Authorization") != "" {
			r.RemoteAddr = path // each its own: guessing is slowed down
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		grpc := w.Header().Get("Content-Type") == "application/grpc" && w.Header().Get("Grpc-Status") != "0"
		if w.Code < 400 && at.Path != "/healthz" && at.Path != "/health" && !grpc {
			t.Errorf("%s %q of %q with %q: %q is let in with %d %v", method, path, host, header, value, w.Code, w.Header())
		}
	})
}
