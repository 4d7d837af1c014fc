package e2b_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestBuild: a template from steps, as the SDK builds it: begun, its files uploaded, its steps started, its log read to the end.
func TestBuild(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var mu sync.Mutex
	var ran []string
	served := make(chan struct{})
	serve := sync.OnceFunc(func() { close(served) })
	a.daemon.OnCommand(func(_ context.Context, command *sdktest.Command) int {
		line := strings.Join(append(slices.Clone(command.Request.Command), command.Env["AGBOX_READY"]), " ")
		mu.Lock()
		ran = append(ran, line)
		mu.Unlock()
		fmt.Fprintf(command.Stdout, "did %s\n", line)
		if strings.HasSuffix(line, "-c serve ") {
			serve()
		}
		return 0
	})
	begun := a.do(http.StatusAccepted, "POST", "/v3/templates", object{"name": "mine:v2", "tags": []string{"default"}, "cpuCount": 1, "memoryMB": 512})
	template, id := begun["templateID"].(string), begun["buildID"].(string)
	place := a.do(http.StatusCreated, "GET", "/templates/"+template+"/files/abc", nil)
	if place["present"] != false {
		t.Fatalf("files that nobody sent: %v", place)
	}
	to := place["url"].(string)
	if status := a.put(strings.Replace(to, "signature=", "signature=0", 1), archive(t)); status != http.StatusUnauthorized {
		t.Errorf("an upload with another signature: %d", status)
	}
	if status := a.put(to, archive(t)); status != http.StatusNoContent {
		t.Fatalf("the upload: %d", status)
	}
	if place := a.do(http.StatusCreated, "GET", "/templates/"+template+"/files/abc", nil); place["present"] != true {
		t.Errorf("files that were sent: %v", place)
	}
	path := "/templates/" + template + "/builds/" + id
	steps := []object{
		{"type": "ENV", "args": []string{"KEY", "value"}}, {"type": "WORKDIR", "args": []string{"/app"}},
		{"type": "COPY", "args": []string{"src", "/app/", "root", "0755"}, "filesHash": "abc"}, {"type": "RUN", "args": []string{"make it", "root"}, "force": true},
		{"type": "USER", "args": []string{"user"}},
	}
	if status, text, _ := a.try("POST", "/v2"+path, object{"fromImage": "debian:12", "steps": steps, "startCmd": "serve", "readyCmd": "ready?"}); status != http.StatusAccepted {
		t.Fatalf("start: %d %s", status, text)
	}
	a.do(http.StatusConflict, "POST", "/v2"+path, object{"steps": steps})
	status, log := a.built(path)
	if status["status"] != "ready" || !slices.ContainsFunc(log, func(e string) bool { return strings.Contains(e, "did ") && strings.Contains(e, "make it") }) {
		t.Fatalf("the build is %v with the log %v", status, log)
	}
	if info := a.info(a.create(object{"templateID": "mine", "envVars": object{"MORE": "more"}})); info["templateID"] != template || info["alias"] != "mine" || info["cpuCount"] != 1.0 || info["memoryMB"] != 512.0 {
		t.Errorf("a sandbox of it is %v", info)
	}
	mu.Lock()
	all := strings.Join(ran, "\n")
	mu.Unlock()
	for _, want := range []string{"make it", "until "} {
		if !strings.Contains(all, want) {
			t.Errorf("%q was not run: %s", want, all)
		}
	}
	select {
	case <-served:
	case <-time.After(2 * time.Minute):
		t.Error("the template's start command was not started")
	}
	a.create(object{"templateID": "mine:v2"})
	a.create(object{"templateID": template})
	a.do(http.StatusNotFound, "POST", "/v2/sandboxes", object{"templateID": "mine:v3"})
	if tags, _ := a.list("/templates/" + template + "/tags"); len(tags) != 2 {
		t.Errorf("its tags are %v", tags)
	}
	if list, _ := a.list("/snapshots"); len(list) != 0 {
		t.Errorf("a template is no snapshot: %v", list)
	}
	a.url = a.gateway() // another gateway finds what was built
	if again, _ := a.built(path); again["status"] != "ready" {
		t.Errorf("after a restart the build is %v", again)
	}
	if left, err := a.client.ListSandboxes(t.Context(), sdk.Filter{Labels: map[string]string{"e2b/kind": "build"}, States: []sdk.State{sdk.StateReady}}); err != nil || len(left) != 0 {
		t.Errorf("the build leaves %v, %v", left, err)
	}
}

// TestBuildFails: a build that fails says at which step and why, and leaves nothing.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.daemon.OnCommand(func(_ context.Context, command *sdktest.Command) int {
		if strings.Contains(strings.Join(append(slices.Clone(command.Request.Command), command.Env["AGBOX_READY"]), " "), "fail-here") {
			return 7
		}
		return 0
	})
	for _, name := range []string{"", "Not Possible", "base", "x:y z"} {
		a.do(http.StatusBadRequest, "POST", "/v3/templates", object{"name": name})
	}
	a.do(http.StatusBadRequest, "POST", "/v3/templates", object{"name": "many", "tags": slices.Repeat([]string{"t"}, 17)})
	a.do(http.StatusNotFound, "GET", "/templates/x/builds/y/status", nil)
	for _, c := range []struct {
		step object
		says string
	}{
		{object{"type": "RUN", "args": []string{"fail-here"}}, "exit code 7"},
		{object{"type": "VOLUME", "args": []string{"/x"}}, "not offered"},
		{object{"type": "COPY", "args": []string{"a", "/b"}, "filesHash": "nope"}, "not uploaded"},
	} {
		begun := a.do(http.StatusAccepted, "POST", "/v3/templates", object{"name": "fails"})
		path := fmt.Sprintf("/templates/%s/builds/%s", begun["templateID"], begun["buildID"])
		if status, text, _ := a.try("POST", "/v2"+path, object{"steps": []object{{"type": "RUN", "args": []string{"fine"}}, c.step}}); status != http.StatusAccepted {
			t.Fatalf("start: %d %s", status, text)
		}
		status, _ := a.built(path)
		reason, _ := status["reason"].(object)
		if message, _ := reason["message"].(string); status["status"] != "error" || reason["step"] != "2" || !strings.Contains(message, c.says) {
			t.Errorf("%v: %v", c.step, status)
		}
	}
	a.do(http.StatusNotFound, "POST", "/v2/sandboxes", object{"templateID": "fails"})
}

// built reads a build's status and log until both are at their end, as the SDK does.
func (a *api) built(path string) (status object, log []string) {
	a.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		status = a.do(http.StatusOK, "GET", fmt.Sprintf("%s/status?logsOffset=%d", path, len(log)), nil)
		entries := status["logEntries"].([]any)
		for _, e := range entries {
			log = append(log, e.(object)["message"].(string))
		}
		if over := status["status"] == "ready" || status["status"] == "error"; over && len(entries) == 0 {
			return status, log
		}
		if time.Now().After(deadline) {
			a.Fatalf("the build has no end: %v, %v", status, log)
		}
	}
}

func (a *api) put(url string, body []byte) int {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), "PUT", url, bytes.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // the status tells
	return response.StatusCode
}

func archive(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	out := tar.NewWriter(zip)
	for _, name := range []string{"src/a.txt", "src/sub/b.txt", "other.txt"} {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
