package envd_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd"
	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem/filesystemconnect"
	"github.com/agbox-dev/agbox/gateway/envd/proto/process/processconnect"
	"github.com/agbox-dev/agbox/gateway/route"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// plane is the data plane over a daemon without Docker, and one sandbox.
type plane struct {
	t      *testing.T
	client *sdk.Client
	daemon *sdktest.Daemon
	url    string
	id     string
	http   *http.Client
	plane  *envd.Handler
	listed *atomic.Int32 // how often the daemon was asked for all sandboxes

	process processconnect.ProcessClient
	files   filesystemconnect.FilesystemClient
}

func start(t *testing.T) *plane {
	t.Helper()
	daemon, socket := sdktest.Start(t)
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	box, err := client.CreateSandbox(t.Context(), sdk.Spec{Image: "image"})
	if err != nil {
		t.Fatal(err)
	}
	listed := &atomic.Int32{}
	h := envd.New(envd.Config{
		Client: func(string) agboxv1.SandboxServiceClient { return client.Raw().SandboxServiceClient },
		Token:  func(id string) string { return "token of " + id },
		Sandboxes: func(context.Context) ([]string, error) {
			listed.Add(1)
			return []string{"another", box.ID}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, _, err := route.Of(r, "localhost")
		if err != nil {
			t.Error(err)
		}
		h.ServeHTTP(w, r.WithContext(route.With(r.Context(), target)))
	}))
	t.Cleanup(h.Close)
	t.Cleanup(server.Close)
	p := &plane{t: t, client: client, daemon: daemon, url: server.URL, id: box.ID, http: server.Client(), plane: h, listed: listed}
	client2 := &http.Client{Transport: headers{server.Client().Transport, box.ID}}
	p.process = processconnect.NewProcessClient(client2, server.URL, connect.WithProtoJSON())
	p.files = filesystemconnect.NewFilesystemClient(client2, server.URL, connect.WithProtoJSON())
	return p
}

// headers are what the SDKs send with each call.
type headers struct {
	http.RoundTripper
	id string
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", h.id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", "token of "+h.id)
	return h.RoundTripper.RoundTrip(r)
}

// as names a user, as SDKs do.
func as[T any](message *T, user string) *connect.Request[T] {
	r := connect.NewRequest(message)
	r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	return r
}

// do sends a plain request with the sandbox's headers, and returns the answer.
func (p *plane) do(method, path string, body []byte, header http.Header) (int, http.Header, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", p.id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", "token of "+p.id)
	for name, values := range header {
		if r.Header[name] = values; len(values) == 0 {
			delete(r.Header, name)
		}
	}
	resp, err := p.http.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
