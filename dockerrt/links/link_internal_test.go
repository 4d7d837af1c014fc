package links

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// TestVerifyHoldsNobody: while the engine is asked who the container's first process is, and does not answer, whoever knows it
// can say so, and others whose turn it is not can give up.
func TestVerifyHoldsNobody(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	api, err := client.NewClientWithOpts(client.WithHost(server.URL), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ls := &Links{engine: engine.New(api, engine.Owner{}), log: slog.New(slog.DiscardHandler)}
	ls.engine.SetPrimary("box-1", "primary")
	l := &Link{running: make(chan struct{}), verifying: make(chan struct{}, 1)}
	l.Started()
	ctx, giveUp := context.WithCancel(t.Context())
	results := make(chan error, 1)
	go func() { results <- ls.verify(ctx, l, "box-1", os.Getpid()) }()
	<-asked
	l.Found(os.Getpid())
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ls.verify(late, l, "box-1", os.Getpid()); err == nil {
		t.Error("another peer was let in meanwhile")
	}
	giveUp()
	if err := <-results; err == nil {
		t.Error("a peer was let in without an answer")
	}
	if err := ls.verify(t.Context(), l, "box-1", os.Getpid()); err != nil {
		t.Errorf("the process that is known is refused: %v", err)
	}
}
