package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// get asks as HTTP/1.1 does and returns the status and the body.
func get(t *testing.T, g *gatewaytest.Gateway, path string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", g.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestWhoGetsWhere: each request comes to its handler, and what needs a token gets nowhere without one.
func TestWhoGetsWhere(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	var log bytes.Buffer
	g := gatewaytest.Start(t, socket, access.Token{}, gatewaytest.WithLog(&log))
	for _, tt := range []struct {
		path   string
		header []string
		status int
		says   string
	}{
		{"/healthz", nil, 200, "ok\n"},
		{"/health", nil, 204, ""},
		{"/v2/sandboxes", nil, 401, `{"code":401,"message":"no token`},
		{"/v2/sandboxes", []string{"X-API-Key", "e2b_wrong"}, 401, `{"code":401,"message":"the token is not known`},
		{"/metrics", nil, 401, `{"code":401`},
		{"/healthz", []string{"Host", "evil.example"}, 200, "ok\n"},
		{"/v2/sandboxes", []string{"Host", "evil.example", "X-API-Key", g.Token}, 421, `{"code":421,"message":"this gateway is not at`},
		{"/", []string{"Host", "evil.example", "E2b-Sandbox-Id", "box1", "E2b-Sandbox-Port", "80"}, 421, `{"code":421`},
		{"/files?signature=x", []string{"Host", "evil.example:7439"}, 421, `{"code":421`},
		{"/", []string{"E2b-Sandbox-Id", "box1"}, 400, `{"code":400,"message":"the headers`},
	} {
		status, body := get(t, g, tt.path, tt.header...)
		if status != tt.status || !strings.HasPrefix(body, tt.says) {
			t.Errorf("%s with %v: %d %q", tt.path, tt.header, status, body)
		}
	}
	for _, header := range [][]string{{"X-API-Key", g.Token}, {"Authorization", "Bearer " + g.Token}} {
		if status, body := get(t, g, "/nonsense", header...); status == 401 {
			t.Errorf("with %s: %d %q", header[0], status, body)
		}
	}
	g.Down() // the log is written no more
	if strings.Contains(log.String(), g.Token) || strings.Contains(log.String(), "e2b_wrong") {
		t.Errorf("the log tells tokens:\n%s", &log)
	}
	if !strings.Contains(log.String(), `"msg":"token refused"`) {
		t.Errorf("the log does not tell of a refused token:\n%s", &log)
	}
}

// TestUnsafeIsRefused: on an address that others reach there is no cleartext.
func TestUnsafeIsRefused(t *testing.T) {
	t.Parallel()
	tokens, err := access.OpenTokens(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		g, err := gateway.New(gateway.Config{Listen: address, Tokens: tokens, Log: slog.New(slog.DiscardHandler)}, nil)
		if !errors.Is(err, gateway.ErrUnsafe) {
			t.Errorf("%s: %v, %v", address, g, err)
		}
	}
}

// TestStrangersHoldNoPlace: connections that say nothing, or not all, or never end what they began, give way to those that
// come later, and one that has shown a token stays.
func TestStrangersHoldNoPlace(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{})
	client := g.Client(g.Token)
	if _, err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range gateway.MaxUnproven + 20 {
		conn, err := net.Dial("tcp", g.Address().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 1 {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		}
	}
	if status, _ := get(t, g, "/healthz"); status != 200 {
		t.Errorf("a newcomer gets %d", status)
	}
	if n := gateway.Unproven(g.Gateway); n > gateway.MaxUnproven {
		t.Errorf("%d strangers are there at once, and %d may be", n, gateway.MaxUnproven)
	}
	if _, err := client.Ping(t.Context()); err != nil {
		t.Errorf("who has shown a token: %v", err)
	}
}

// TestTooMuchIsRefused: headers and bodies have bounds.
func TestTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{})
	conn, err := net.Dial("tcp", g.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	// The gateway closes while more is on its way, so its answer may be lost.
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("large headers: %s", resp.Status)
		}
	}
	box := g.Client(g.Token)
	_, err = box.CreateExec(t.Context(), "box1", []string{strings.Repeat("x", 9<<20)})
	if err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("a large message: %v", err)
	}
}
