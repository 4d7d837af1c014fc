//go:build long

package gateway_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// TestLongManyStreams: 200 sandboxes of one token, and a stream of each that is open until its sandbox is deleted, by one connection.
func TestLongManyStreams(t *testing.T) {
	t.Parallel()
	const many = 200
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{Labels: map[string]string{"team": "x"}, Quota: access.Quota{Sandboxes: many}}, gatewaytest.WithTLS())
	c := g.Client(g.Token)
	ready, deleted := make(chan struct{}, many), errgroup.Group{}
	for i := range many {
		id := fmt.Sprintf("box-%d", i)
		if _, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image"}, sdk.WithSandboxID(id), sdk.WithWait(false)); err != nil {
			t.Fatal(err)
		}
		deleted.Go(func() error {
			for event, err := range c.Raw().Follow(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id}) {
				if err != nil {
					return err
				}
				if event.GetEventType() == agboxv1.EventType_SANDBOX_READY {
					ready <- struct{}{}
				}
			}
			return nil
		})
	}
	for range many {
		<-ready
	}
	if _, err := c.Raw().DeleteSandboxes(t.Context(), &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{"team": "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := deleted.Wait(); err != nil {
		t.Error(err)
	}
}
