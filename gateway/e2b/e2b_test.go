package e2b_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// api is a control plane over a daemon without Docker.
type api struct {
	*testing.T
	url    string
	dir    string
	daemon *sdktest.Daemon
	client *sdk.Client
}

func newAPI(t *testing.T) *api {
	t.Helper()
	daemon, socket := sdktest.Start(t)
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	a := &api{T: t, daemon: daemon, client: client, dir: t.TempDir()}
	a.url = a.gateway()
	return a
}

// gateway begins another control plane over the same daemon.
func (a *api) gateway() string {
	handler := e2b.New(e2b.Config{
		Client: func(r *http.Request) (*sdk.Client, error) {
			if r.Header.Get("X-API-Key") != "e2b_00" {
				return nil, io.ErrUnexpectedEOF
			}
			return a.client, nil
		},
		Builds: a.builds(), Owner: func(r *http.Request) string { return r.Header.Get("X-API-KEY") },
		Made:   func(*http.Request, map[string]string) bool { return true },
		Daemon: a.client, Token: func(id string) string { return "token of " + id },
		PortsToken: func(id string) string { return "ports of " + id }, Domain: "localhost:7439", Log: slog.New(slog.DiscardHandler),
		Templates: map[string]e2b.Template{"base": {Image: "debian:12", CPUs: 2, MemoryBytes: 1 << 30}, "broken": {Image: sdktest.ImageBroken}},
	})
	server := httptest.NewServer(handler)
	a.Cleanup(handler.Close)
	a.Cleanup(server.Close)
	return server.URL
}

// builds are those of the test's one directory.
func (a *api) builds() *build.Builds {
	builds, err := build.Open(a.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(builds.Close)
	return builds
}

// object is JSON.
type object = map[string]any

// try does a call; body is JSON, a string as it is, or nil.
func (a *api) try(method, path string, body any) (status int, answer string, header http.Header) {
	a.Helper()
	var sent io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		sent = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			a.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(a.Context(), method, a.url+path, sent)
	if err != nil {
		a.Fatal(err)
	}
	r.Header.Set("X-API-KEY", "e2b_00")
	response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

// do is a call that must answer with this status, and with an object unless it is 204. A refusal has its status in its body.
func (a *api) do(want int, method, path string, body any) object {
	a.Helper()
	status, text, _ := a.try(method, path, body)
	if status != want {
		a.Fatalf("%s %s: %d %s, want %d", method, path, status, text, want)
	}
	if status == http.StatusNoContent {
		return nil
	}
	var answer object
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		a.Fatalf("%s %s: %q: %v", method, path, text, err)
	}
	if message, _ := answer["message"].(string); status >= 400 && (answer["code"] != float64(status) || message == "") {
		a.Errorf("%s %s: the refusal is %s", method, path, text)
	}
	return answer
}

// list is a call that answers with a list of objects.
func (a *api) list(path string) ([]object, http.Header) {
	a.Helper()
	status, text, header := a.try("GET", path, nil)
	var answer []object
	if err := json.Unmarshal([]byte(text), &answer); status != http.StatusOK || err != nil {
		a.Fatalf("GET %s: %d %s", path, status, text)
	}
	return answer, header
}

// create makes a sandbox and returns its id.
func (a *api) create(request object) string {
	a.Helper()
	if _, named := request["templateID"]; !named {
		request["templateID"] = "base"
	}
	return a.do(http.StatusCreated, "POST", "/v2/sandboxes", request)["sandboxID"].(string)
}

func (a *api) info(id string) object {
	a.Helper()
	return a.do(http.StatusOK, "GET", "/sandboxes/"+id, nil)
}

// ids are those of a list.
func ids(list []object) string {
	var text []string
	for _, o := range list {
		text = append(text, o["sandboxID"].(string))
	}
	return strings.Join(text, " ")
}
