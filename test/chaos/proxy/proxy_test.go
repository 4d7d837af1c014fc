package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/test/chaos/proxy"
)

// engine is a fake one: it counts what reaches it, streams lines on demand and echoes on upgraded connections.
type engine struct {
	reached atomic.Int64
	lines   chan string
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.reached.Add(1)
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-e.lines:
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/attach"):
		e.attach(w)
	default:
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}
}

// attach upgrades, echoes until the caller has sent its last byte, and says how much that was.
func (e *engine) attach(w http.ResponseWriter) {
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	n, _ := io.Copy(conn, buffered)
	fmt.Fprintf(conn, "%d bytes", n)
}

type bench struct {
	*proxy.Proxy
	engine *engine
	client *http.Client
	socket string
}

func newBench(t *testing.T, seed uint64) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	target := filepath.Join(dir, "engine")
	listener, err := net.Listen("unix", target)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{engine: &engine{lines: make(chan string)}, socket: filepath.Join(dir, "proxy")}
	server := &http.Server{Handler: b.engine}
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-served })
	if b.Proxy, err = proxy.New(target, b.socket, seed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	// A connection for each call: a retry by the client on a kept one would hide a drop.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	b.client = &http.Client{Transport: transport}
	return b
}

func (b *bench) use(t *testing.T, rules ...proxy.Rule) {
	t.Helper()
	if err := b.Use(rules...); err != nil {
		t.Fatal(err)
	}
}

// do returns the reply, and the error of the call or of reading its body.
func (b *bench) do(t *testing.T, method, path string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+path, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := b.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

func TestForwards(t *testing.T) {
	b := newBench(t, 1)
	status, body, err := b.do(t, "POST", "/v1.41/containers/create?name=a%20b&x")
	if err != nil || status != 200 || body != "POST /v1.41/containers/create?name=a%20b&x hello" {
		t.Fatalf("got %d %q %v", status, body, err)
	}
	b.do(t, "GET", "/_ping")
	b.do(t, "POST", "/v1.41/containers/create?name=c")
	want := []proxy.Call{{1, "POST", "/containers/create"}, {2, "GET", "/_ping"}, {3, "POST", "/containers/create"}}
	if got := b.Calls(); !slices.Equal(got, want) {
		t.Fatalf("calls are %q, want %q", got, want)
	}
}

func TestFaults(t *testing.T) {
	released := make(chan struct{})
	close(released)
	var ran atomic.Int64
	run := func() { ran.Add(1) }
	const whole = "GET /v1.41/info hello"
	tests := []struct {
		name    string
		phase   proxy.Phase
		fault   proxy.Fault
		reached bool
		status  int
		body    string
		broken  bool
	}{
		{"status before", proxy.Before, proxy.Status(500, "no"), false, 500, "{\"message\":\"no\"}\n", false},
		{"status after", proxy.After, proxy.Status(503, "no"), true, 503, "{\"message\":\"no\"}\n", false},
		{"drop before", proxy.Before, proxy.Drop(), false, 0, "", true},
		{"drop after", proxy.After, proxy.Drop(), true, 0, "", true},
		{"drop in body", proxy.Body, proxy.Drop(), true, 200, "", true},
		{"truncate", proxy.Body, proxy.Truncate(5), true, 200, whole[:5], true},
		{"delay before", proxy.Before, proxy.Delay(time.Nanosecond), true, 200, whole, false},
		{"delay after", proxy.After, proxy.Delay(time.Nanosecond), true, 200, whole, false},
		{"delay in body", proxy.Body, proxy.Delay(time.Nanosecond), true, 200, whole, false},
		{"hang that is released", proxy.After, proxy.Hang(released), true, 200, whole, false},
		{"run before", proxy.Before, proxy.Run(run), false, 0, "", true},
		{"run after", proxy.After, proxy.Run(run), true, 0, "", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, 1)
			b.use(t, proxy.Rule{Path: regexp.MustCompile("^/info$"), Phase: test.phase, Fault: test.fault})
			status, body, err := b.do(t, "GET", "/v1.41/info")
			if status != test.status || body != test.body || (err != nil) != test.broken {
				t.Errorf("got %d %q %v", status, body, err)
			}
			if reached := b.engine.reached.Load() > 0; reached != test.reached {
				t.Errorf("reached the engine: %v", reached)
			}
			if got := b.Faults()[test.fault.String()]; got != 1 {
				t.Errorf("the fault happened %d times", got)
			}
			if _, body, err := b.do(t, "GET", "/other"); err != nil || body != "GET /other hello" {
				t.Errorf("another call got %q %v", body, err)
			}
		})
	}
	if ran.Load() != 2 {
		t.Errorf("ran %d times", ran.Load())
	}
}

func TestHangEndsWithTheCaller(t *testing.T) {
	b := newBench(t, 1)
	b.use(t, proxy.Rule{Fault: proxy.Hang(make(chan struct{}))})
	ctx, cancel := context.WithCancel(t.Context())
	b.OnCall(func(proxy.Call, proxy.Phase) { cancel() })
	request, _ := http.NewRequestWithContext(ctx, "GET", "http://docker/info", nil)
	if _, err := b.client.Do(request); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if b.engine.reached.Load() != 0 {
		t.Error("the hanging call went on when its caller had left")
	}
}

func TestNth(t *testing.T) {
	b := newBench(t, 1)
	b.use(t, proxy.Rule{Method: "POST", Nth: 2, Fault: proxy.Status(500, "")})
	var got []int
	for _, method := range []string{"POST", "GET", "POST", "POST"} {
		status, _, err := b.do(t, method, "/x")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	if want := []int{200, 200, 500, 200}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestChanceFollowsTheSeed(t *testing.T) {
	draw := func(seed uint64) string {
		b := newBench(t, seed)
		b.use(t, proxy.Rule{Chance: 0.3, Fault: proxy.Status(500, "")})
		var text strings.Builder
		for range 200 {
			if status, _, _ := b.do(t, "GET", "/x"); status == 500 {
				text.WriteByte('!')
			} else {
				text.WriteByte('.')
			}
		}
		return text.String()
	}
	first, again, other := draw(7), draw(7), draw(8)
	if first != again {
		t.Errorf("seed 7 gave\n%s and\n%s", first, again)
	}
	if first == other {
		t.Error("another seed gave the same")
	}
	if n := strings.Count(first, "!"); n < 30 || n > 90 {
		t.Errorf("%d of 200 suffered, want about 60", n)
	}
}

func TestBadRules(t *testing.T) {
	b := newBench(t, 1)
	for name, rule := range map[string]proxy.Rule{
		"no fault":        {},
		"status in body":  {Phase: proxy.Body, Fault: proxy.Status(500, "")},
		"truncate before": {Phase: proxy.Before, Fault: proxy.Truncate(3)},
	} {
		if err := b.Use(rule); !errors.Is(err, proxy.ErrBadRule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnCall(t *testing.T) {
	b := newBench(t, 1)
	var mu sync.Mutex
	var told []string
	b.OnCall(func(c proxy.Call, phase proxy.Phase) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(c.N, c, " ", phase))
	})
	b.do(t, "GET", "/v1.41/info")
	if want := []string{"1 GET /info before", "1 GET /info after", "1 GET /info body"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// stream opens the event stream and returns what arrives on it, line by line.
func (b *bench) stream(t *testing.T) (*bufio.Scanner, func() error) {
	t.Helper()
	reply, err := b.client.Get("http://docker/v1.41/events")
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(reply.Body), reply.Body.Close
}

func TestStreamsAndCut(t *testing.T) {
	b := newBench(t, 1)
	lines, end := b.stream(t)
	defer end()
	b.engine.lines <- "one"
	if !lines.Scan() || lines.Text() != "one" {
		t.Fatalf("got %q, %v", lines.Text(), lines.Err())
	}
	if n := b.Cut(regexp.MustCompile("^GET /info$")); n != 0 {
		t.Errorf("cut %d others", n)
	}
	if n := b.Cut(regexp.MustCompile("^GET /events$")); n != 1 {
		t.Errorf("cut %d streams", n)
	}
	if lines.Scan() || lines.Err() == nil {
		t.Errorf("after the cut: %q, %v", lines.Text(), lines.Err())
	}
	lines, end = b.stream(t)
	defer end()
	b.engine.lines <- "two"
	if !lines.Scan() || lines.Text() != "two" {
		t.Fatalf("got %q, %v", lines.Text(), lines.Err())
	}
}

func TestUpgrade(t *testing.T) {
	b := newBench(t, 1)
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1.41/containers/x/attach HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	reader := bufio.NewReader(conn)
	reply, err := http.ReadResponse(reader, nil)
	if err != nil || reply.StatusCode != http.StatusSwitchingProtocols || reply.Header.Get("Upgrade") != "tcp" {
		t.Fatalf("got %v, %v", reply, err)
	}
	io.WriteString(conn, "ping")
	echo := make([]byte, 4)
	if _, err := io.ReadFull(reader, echo); err != nil || string(echo) != "ping" {
		t.Fatalf("echo %q, %v", echo, err)
	}
	// The other half stays open when one is closed.
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(reader); err != nil || string(rest) != "4 bytes" {
		t.Fatalf("rest %q, %v", rest, err)
	}
}
