package e2b_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// FuzzCall: whatever is asked, the answer has the form that SDKs read: a refusal says its status in its body, and nothing is the
// gateway's own fault.
func FuzzCall(f *testing.F) {
	daemon, socket := sdktest.Start(f)
	// Nothing is to be made here, and nobody waits.
	daemon.OnCall(func(rpc string, _ proto.Message) error {
		if rpc == "CreateSandbox" || rpc == "WatchStats" {
			return sdktest.Refusal(codes.ResourceExhausted, "", "not here")
		}
		return nil
	})
	client, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		f.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	builds, err := build.Open(f.TempDir(), log)
	if err != nil {
		f.Fatal(err)
	}
	handler := e2b.New(e2b.Config{
		Client: func(*http.Request) (*sdk.Client, error) { return client, nil }, Daemon: client,
		Token: func(id string) string { return "token of " + id }, Owner: func(*http.Request) string { return "owner" }, Builds: builds, Log: log,
		Templates: map[string]e2b.Template{"base": {Image: "debian:12"}},
	})
	f.Cleanup(func() {
		handler.Close()
		builds.Close()
		client.Close()
	})
	for _, seed := range [][3]string{
		{"POST", "/v2/sandboxes", `{"templateID":"base","timeout":1,"metadata":{"a":"b"},"network":{"denyOut":["8.8.8.8/0"]}}`},
		{"POST", "/sandboxes", `{"templateID":"base","network":{"allowOut":["1.2.3.4/99"],"denyOut":["0.0.0.0/0"]}}`},
		{"GET", "/v2/sandboxes?metadata=%25&nextToken=e30&state=running,paused&order=asc&limit=1&startedAfter=2020-01-01T00:00:00Z", ""},
		{"GET", "/sandboxes/%2e%2e/metrics?start=-1&end=99999999999999999999", ""},
		{"POST", "/v2/sandboxes/i00000000000000000000/connect", `{"timeout":1e9}`},
		{"DELETE", "/templates/team%2Fname%3Atag", ""},
		{"POST", "/v3/templates", `{"name":"x:y","tags":["a,b"],"cpuCount":-1}`},
		{"POST", "/v2/templates/t/builds/b", `{"steps":[{"type":"COPY","args":null}]}`},
		{"PUT", "/e2b/uploads/eA/eA?until=9999999999&signature=x", "x"},
		{"GET", "/snapshots?name=a:b:c&limit=x", ""},
		{"PUT", "/sandboxes/x/network", "null"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		parsed, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(parsed.Path, "/") {
			return
		}
		request := (&http.Request{Method: method, URL: parsed, Host: "localhost", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}).WithContext(t.Context())
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		var refusal struct {
			Code    int
			Message string
		}
		switch status := recorder.Code; {
		case status == http.StatusInternalServerError:
			t.Errorf("%s %s: %s", method, target, recorder.Body)
		case status < 400:
		case json.Unmarshal(recorder.Body.Bytes(), &refusal) != nil || refusal.Code != status || refusal.Message == "":
			t.Errorf("%s %s: %d %s", method, target, status, recorder.Body)
		}
	})
}
