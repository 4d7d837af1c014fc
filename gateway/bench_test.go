package gateway_test

import (
	"testing"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// BenchmarkCall is one small call on the socket, and what the gateway adds to it.
func BenchmarkCall(b *testing.B) {
	_, socket := sdktest.Start(b)
	near, err := sdk.New(sdk.WithSocket(socket))
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	g := gatewaytest.Start(b, socket, access.Token{Labels: map[string]string{"team": "x"}})
	secure := gatewaytest.Start(b, socket, access.Token{Labels: map[string]string{"team": "x"}}, gatewaytest.WithTLS())
	if _, err := g.Client(g.Token).CreateSandbox(b.Context(), sdk.Spec{Image: "image"}, sdk.WithSandboxID("box1")); err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name   string
		client *sdk.Client
	}{{"socket", near}, {"http", g.Client(g.Token)}, {"https", secure.Client(secure.Token)}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := way.client.Raw().GetSandbox(b.Context(), &agboxv1.GetSandboxRequest{SandboxId: "box1"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
