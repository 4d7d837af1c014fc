package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// removing is an engine where somebody else removes a container: so often in vain, and it says so when told to.
type removing struct {
	mu     sync.Mutex
	calls  []string
	failed int
	ended  chan struct{}
}

func (e *removing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, call, _ := strings.Cut(r.URL.Path, "/containers/")
	e.mu.Lock()
	e.calls = append(e.calls, r.Method+" "+call)
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"message":"removal of container box is already in progress"}`)
		return
	}
	if r.URL.Query().Get("condition") != "removed" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	select {
	case <-e.ended:
	case <-r.Context().Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed--; e.failed >= 0 {
		fmt.Fprint(w, `{"StatusCode":1,"Error":{"Message":"device or resource busy"}}`)
		return
	}
	fmt.Fprint(w, `{"StatusCode":0}`)
}

// TestRemovalOfSomebodyElse: a container that somebody else removes is waited for, and what they could not do is tried again.
func TestRemovalOfSomebodyElse(t *testing.T) {
	t.Parallel()
	fake := &removing{failed: 1, ended: make(chan struct{})}
	server := httptest.NewServer(fake)
	defer server.Close()
	api, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	c := engine.New(api, engine.Owner{})
	defer c.Close()
	close(fake.ended)
	if err := c.RemoveContainer(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if want := []string{"DELETE box", "POST box/wait", "DELETE box", "POST box/wait"}; !slices.Equal(fake.calls, want) {
		t.Errorf("the engine was asked for %q, want %q", fake.calls, want)
	}
}

// TestContainerName: an engine lists a container that is being renamed or removed without a name.
func TestContainerName(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef"
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"/box"}, "box"},
		{[]string{"/other/alias", "/box"}, "box"},
		{nil, "0123456789ab"},
		{[]string{""}, "0123456789ab"},
	} {
		if got := engine.ContainerName(container.Summary{ID: id, Names: tt.names}); got != tt.want {
			t.Errorf("%q is called %q, want %q", tt.names, got, tt.want)
		}
	}
}
