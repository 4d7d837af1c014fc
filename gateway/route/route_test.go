package route_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/gateway/route"
)

func request(host, path, sandbox, port string) *http.Request {
	r := &http.Request{Method: "GET", Host: host, Header: http.Header{}, URL: &url.URL{}}
	if parsed, err := url.ParseRequestURI(path); err == nil {
		r.URL = parsed
	}
	if sandbox != "" {
		r.Header.Set(route.HeaderSandbox, sandbox)
	}
	if port != "" {
		r.Header.Set(route.HeaderPort, port)
	}
	return r
}

func TestOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		host, path, sandbox, port string
		want                      route.Target
		found                     bool
		refused                   string
	}{
		"the gateway itself":         {host: "127.0.0.1:7439", path: "/v2/sandboxes"},
		"a port by name":             {host: "8000-box1.localhost", path: "/", want: route.Target{Sandbox: "box1", Port: 8000}, found: true},
		"an id with dashes":          {host: "8000-my-box-1.localhost:7439", path: "/", want: route.Target{Sandbox: "my-box-1", Port: 8000}, found: true},
		"capitals and a last dot":    {host: "8000-BOX1.LocalHost.", path: "/", want: route.Target{Sandbox: "BOX1", Port: 8000}, found: true},
		"the name before headers":    {host: "8000-box1.localhost", path: "/", sandbox: "box2", port: "1", want: route.Target{Sandbox: "box1", Port: 8000}, found: true},
		"another domain":             {host: "8000-box1.example.com", path: "/"},
		"no port in the name":        {host: "box1.localhost", path: "/"},
		"port 0":                     {host: "0-box1.localhost", path: "/"},
		"a port of two forms":        {host: "08000-box1.localhost", path: "/"},
		"a port too large":           {host: "65536-box1.localhost", path: "/"},
		"a name below":               {host: "8000-box1.x.localhost", path: "/"},
		"no id":                      {host: "8000-.localhost", path: "/"},
		"by headers":                 {host: "127.0.0.1", path: "/health", sandbox: "box1", port: "49983", want: route.Target{Sandbox: "box1", Port: 49983}, found: true},
		"a sandbox without its port": {host: "127.0.0.1", path: "/", sandbox: "box1", refused: "go together"},
		"a port without its sandbox": {host: "127.0.0.1", path: "/", port: "80", refused: "go together"},
		"a path for an id":           {host: "127.0.0.1", path: "/", sandbox: "../../x", port: "80", refused: "no sandbox id"},
		"no number":                  {host: "127.0.0.1", path: "/", sandbox: "box1", port: "+80", refused: "no port"},
		"a signature":                {host: "127.0.0.1", path: "/files?path=x&signature=v1_abc", want: route.Target{Port: route.EnvdPort}, found: true},
		"files without one":          {host: "127.0.0.1", path: "/files?path=x"},
		"a path that only begins so": {host: "127.0.0.1", path: "/filesystem.Filesystem/Stat?signature=x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found, err := route.Of(request(tt.host, tt.path, tt.sandbox, tt.port), "localhost")
			if tt.refused != "" {
				if !errors.Is(err, route.ErrTarget) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || found != tt.found || found && got != tt.want {
				t.Errorf("got %v, %v, %v", got, found, err)
			}
		})
	}
}

// TestOurs: a page whose name was bound to this machine is told from who was sent here.
func TestOurs(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1:7439": true, "[::1]:7439": true, "[::1]": true, "localhost:7439": true, "LOCALHOST.": true, "8000-box1.localhost:7439": true,
		"box.example.com": true, "api.box.example.com:443": true, "": true,
		"evil.com": false, "evil.com:7439": false, "evillocalhost": false, "localhost.evil.com": false, "127.0.0.1.evil.com": false, "example.com": false,
	} {
		if got := route.Ours(host, "box.example.com"); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	route.Refuse(w, 404, `no "x"`)
	if got := w.Body.String(); w.Code != 404 || got != "{\"code\":404,\"message\":\"no \\\"x\\\"\"}\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %q %v", w.Code, got, w.Header())
	}
}

// FuzzOf: whatever a request says, a target that is found has an id and a port that can be.
func FuzzOf(f *testing.F) {
	f.Add("8000-box1.localhost:1", "/files?signature=x", "", "")
	f.Add("127.0.0.1", "/", "box1", "49983")
	f.Add("[::1]:7439", "//..%2f", "a-b_c", "1")
	f.Add("0-....localhost", "/%", "\x00\x00\x00\x00", "99999999999999999999")
	f.Fuzz(func(t *testing.T, host, path, sandbox, port string) {
		got, found, err := route.Of(request(host, path, sandbox, port), "localhost")
		if err != nil && found {
			t.Errorf("refused and found: %v, %v", got, err)
		}
		if !found {
			return
		}
		if got.Port == 0 || strings.ContainsAny(got.Sandbox, "/.%\\ \x00") || got.Sandbox != "" && len(got.Sandbox) < 4 {
			t.Errorf("%q, %q, %q, %q: found %+v", host, path, sandbox, port, got)
		}
	})
}
