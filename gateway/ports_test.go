package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// visited is a gateway before a sandbox whose ports are those of this machine.
type visited struct {
	*testing.T
	*gatewaytest.Gateway
	client *sdk.Client
	box    sdk.Sandbox
}

func visit(t *testing.T, spec sdk.Spec) *visited {
	t.Helper()
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{})
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	spec.Image = "debian"
	box, err := client.CreateSandbox(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return &visited{t, g, client, box}
}

// serve listens as something in the sandbox would, and returns the name of the port.
func (v *visited) serve(handler http.HandlerFunc) (host string) {
	v.Helper()
	server := httptest.NewServer(handler)
	v.Cleanup(server.Close)
	return v.host(server.Listener.Addr())
}

func (v *visited) host(inside net.Addr) string {
	return fmt.Sprintf("%d-%s.localhost:%d", inside.(*net.TCPAddr).Port, v.box.ID, v.Address().(*net.TCPAddr).Port)
}

// browser finds every name at the gateway, as one on this machine does with *.localhost, and follows no redirect.
func (v *visited) browser() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", v.Address().String())
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (v *visited) get(url string, header http.Header) (int, http.Header, string) {
	v.Helper()
	request, err := http.NewRequestWithContext(v.Context(), http.MethodGet, url, nil)
	if err != nil {
		v.Fatal(err)
	}
	request.Header = header.Clone()
	response, err := v.browser().Do(request)
	if err != nil {
		v.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		v.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

var public = map[string]string{"ports": "public"}

// TestPublicPort: who may be anybody reaches what listens, as it is: address, host, streams, WebSockets and gRPC.
func TestPublicPort(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public})
	released := make(chan struct{})
	host := v.serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/socket":
			socket, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			kind, said, err := socket.Read(r.Context())
			if err == nil {
				_ = socket.Write(r.Context(), kind, append([]byte("heard "), said...))
			}
			socket.Close(websocket.StatusNormalClosure, "")
		case "/stream":
			fmt.Fprintln(w, "first")
			w.(http.Flusher).Flush()
			<-released
			fmt.Fprintln(w, "second")
		default:
			fmt.Fprintf(w, "%s %s %s %s", r.Host, r.URL, r.Header.Get("Authorization"), r.Header.Get("X-Forwarded-Proto"))
		}
	})
	if status, _, body := v.get("http://"+host+"/a%2Fb?x=1;y", http.Header{"Authorization": {"Bearer of-the-app"}}); status != http.StatusOK ||
		body != host+" /a%2Fb?x=1;y Bearer of-the-app http" {
		t.Errorf("%d %s", status, body)
	}

	response, err := v.browser().Get("http://" + host + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" || err != nil {
		t.Errorf("before the answer is complete comes %q, %v", line, err)
	}
	close(released)
	if line, err := lines.ReadString('\n'); line != "second\n" || err != nil {
		t.Errorf("then comes %q, %v", line, err)
	}
	response.Body.Close()

	socket, _, err := websocket.Dial(t.Context(), "ws://"+host+"/socket", &websocket.DialOptions{HTTPClient: v.browser()})
	if err != nil {
		t.Fatal(err)
	}
	if err := socket.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, heard, err := socket.Read(t.Context()); err != nil || string(heard) != "heard hello" {
		t.Errorf("the WebSocket says %q, %v", heard, err)
	}
	socket.CloseNow()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+v.Address().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(v.host(listener.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || answer.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC says %v, %v", answer, err)
	}
}

// TestPrivatePort: only who shows a token gets through, in a header, by the address once, or as the holder of a token that sees
// the sandbox; and nothing of it gets into the sandbox.
func TestPrivatePort(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: map[string]string{"team": "a"}})
	other := visit(t, sdk.Spec{})
	host := v.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL, " ", r.Header)
	})
	token := v.Access().PortsToken(v.box.ID)
	mine, foreign := v.NewToken(access.Token{Name: "mine", Labels: map[string]string{"team": "a"}}), v.NewToken(access.Token{Name: "foreign", Labels: map[string]string{"team": "b"}})
	for _, c := range []struct {
		what   string
		query  string
		header http.Header
		status int
	}{
		{"nothing", "", nil, 403},
		{"the token of its ports", "", http.Header{"E2b-Traffic-Access-Token": {token}}, 200},
		{"the sandbox's token", "", http.Header{"X-Access-Token": {v.Access().SandboxToken(v.box.ID)}}, 200},
		{"a cookie", "", http.Header{"Cookie": {"a={\"b\":\"c d\"}; agbox-port-token=" + token + "; e=f"}}, 200},
		{"one of two cookies", "", http.Header{"Cookie": {"agbox-port-token=wrong; agbox-port-token=" + token}}, 200},
		{"a gateway's token", "", http.Header{"Authorization": {"Bearer " + mine}}, 200},
		{"a key", "", http.Header{"X-Api-Key": {mine}}, 200},
		{"the token in the address", "?x=1&agbox-token=" + token, nil, 303},
		{"another sandbox's", "", http.Header{"E2b-Traffic-Access-Token": {v.Access().PortsToken(other.box.ID)}}, 403},
		{"another sandbox's in the address", "?agbox-token=" + v.Access().PortsToken(other.box.ID), nil, 403},
		{"another team's", "", http.Header{"Authorization": {"Bearer " + foreign}}, 403},
		{"an empty cookie", "", http.Header{"Cookie": {"agbox-port-token="}}, 403},
	} {
		status, header, body := v.get("http://"+host+"/page"+c.query, c.header)
		if status != c.status {
			t.Errorf("%s: %d %s, want %d", c.what, status, body, c.status)
		}
		for _, secret := range []string{token, v.Access().SandboxToken(v.box.ID), mine} {
			if status == 200 && strings.Contains(body, secret) {
				t.Errorf("%s: the sandbox sees %s", c.what, body)
			}
		}
		if status == 303 && (header.Get("Location") != "/page?x=1" || !strings.Contains(header.Get("Set-Cookie"), "HttpOnly") || strings.Contains(header.Get("Set-Cookie"), "Domain")) {
			t.Errorf("%s: %v", c.what, header)
		}
		if c.what == "a cookie" && !strings.Contains(body, `a={"b":"c d"}; e=f`) {
			t.Errorf("%s: the sandbox's own are gone: %s", c.what, body)
		}
	}
	if status, header, _ := v.get("http://"+host+"//evil.example/x?agbox-token="+token, nil); status != 303 || strings.HasPrefix(header.Get("Location"), "//") {
		t.Errorf("an address may lead to another host: %d %v", status, header)
	}
}

// TestTokensStayOutside: no token of the gateway's gets into a sandbox, whatever it sees or may still ask for, and what is the app's own
// does.
func TestTokensStayOutside(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public})
	host := v.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header) })
	slow := v.NewToken(access.Token{Name: "slow", Rate: 0.01})
	foreign := v.NewToken(access.Token{Name: "foreign", Labels: map[string]string{"team": "b"}})
	for _, token := range []string{v.Token, slow, foreign} {
		for _, header := range []http.Header{
			{"Authorization": {"Bearer " + token}}, {"X-Api-Key": {token}}, {"X-Api-Key": {"the-app's", token}},
			{"Authorization": {"Bearer " + token}, "X-Api-Key": {"the-app's"}},
		} {
			if status, _, body := v.get("http://"+host, header); status != http.StatusOK || strings.Contains(body, token) {
				t.Errorf("%v: %d %s", header, status, body)
			}
		}
	}
	if _, _, body := v.get("http://"+host, http.Header{"Authorization": {"Bearer " + v.Token}, "X-Api-Key": {"the-app's"}}); !strings.Contains(body, "the-app's") {
		t.Errorf("the app's own key is gone: %s", body)
	}
}

// TestPortUnreached: what does not answer is told as E2B tells it, at once; a sandbox that ends breaks what it was answering.
func TestPortUnreached(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := v.host(listener.Addr())
	listener.Close()
	nobody := strings.Replace(closed, v.box.ID, "nobody", 1)
	for host, want := range map[string]string{closed: "The sandbox is running but port is not open", nobody: "The sandbox was not found"} {
		if status, header, body := v.get("http://"+host, nil); status != http.StatusBadGateway || !strings.Contains(body, want) || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", host, status, body)
		}
	}
	begun, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	host := v.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(1<<20))
		fmt.Fprintln(w, "begun")
		w.(http.Flusher).Flush()
		close(begun)
		<-over
	})
	response, err := v.browser().Get("http://" + host)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-begun
	if err := v.client.Stop(t.Context(), v.box.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer of a sandbox that was stopped ends with %v", err)
	}
	if status, _, body := v.get("http://"+host, nil); status != http.StatusBadGateway || !strings.Contains(body, "The sandbox is not running") {
		t.Errorf("%d %s", status, body)
	}
}

// TestPortWakes: a sandbox that goes on for traffic does for a request, also for one that could go by a connection from before.
func TestPortWakes(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public, Wake: sdk.WakeOnTraffic})
	host := v.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "awake") })
	if status, _, body := v.get("http://"+host, nil); status != http.StatusOK || body != "awake" {
		t.Errorf("%d %s", status, body)
	}
	if err := v.client.Pause(t.Context(), v.box.ID); err != nil {
		t.Fatal(err)
	}
	if status, _, body := v.get("http://"+host, nil); status != http.StatusOK || body != "awake" {
		t.Errorf("%d %s", status, body)
	}
	if box, err := v.client.GetSandbox(t.Context(), v.box.ID); err != nil || box.State != sdk.StateReady {
		t.Errorf("the sandbox that was asked is %s, %v", box.State, err)
	}
	if err := v.client.Stop(t.Context(), v.box.ID); err != nil {
		t.Fatal(err)
	}
	if status, _, body := v.get("http://"+host, nil); status != http.StatusOK || body != "awake" {
		t.Errorf("%d %s", status, body)
	}
}

// TestPortsLeaveRoom: strangers who ask what never answers get so many connections into a sandbox and no more; who asks for something else
// is served.
func TestPortsLeaveRoom(t *testing.T) {
	t.Parallel()
	const most = 128
	v := visit(t, sdk.Spec{Labels: public})
	arrived, over := make(chan struct{}, most), make(chan struct{})
	host := v.serve(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-over
	})
	defer close(over)
	for range most {
		conn, err := net.Dial("tcp", v.Address().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	}
	for range most {
		<-arrived
	}
	if status, header, body := v.get("http://"+host, nil); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("one more gets %d %s", status, body)
	}
	if _, err := v.Client(v.Token).GetSandbox(t.Context(), v.box.ID); err != nil {
		t.Errorf("who has a token: %v", err)
	}
}

// TestSocketsHoldNoPlace: WebSockets of strangers count as their other connections do, until they are closed.
func TestSocketsHoldNoPlace(t *testing.T) {
	t.Parallel()
	v := visit(t, sdk.Spec{Labels: public})
	host := v.serve(func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer socket.CloseNow()
		_, _, _ = socket.Read(r.Context())
	})
	before := gateway.Unproven(v.Gateway.Gateway)
	var sockets []*websocket.Conn
	for range 3 {
		socket, _, err := websocket.Dial(t.Context(), "ws://"+host, &websocket.DialOptions{HTTPClient: v.browser()})
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, socket)
	}
	if n := gateway.Unproven(v.Gateway.Gateway) - before; n != len(sockets) {
		t.Errorf("%d of %d WebSockets are counted", n, len(sockets))
	}
	for _, socket := range sockets {
		socket.CloseNow()
	}
}
