package gateway

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/gateway/ports"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// inside is what listens in sandboxes, for everybody or who shows a token.
func (g *Gateway) inside(conn grpc.ClientConnInterface) *ports.Handler {
	daemon := agboxv1.NewSandboxServiceClient(conn)
	return ports.New(ports.Config{
		Client: func(id string) (*sdk.Client, error) { return sdk.Over(g.access.Conn(access.ForSandbox(id))) },
		Token:  g.access.PortsToken,
		All:    g.access.SandboxToken,
		Holder: g.sees,
		Proven: proven,
		Known: func(r *http.Request) bool {
			_, err := g.access.Authenticate(r)
			return !errors.Is(err, access.ErrNoToken) && !errors.Is(err, access.ErrToken)
		},
		Open: e2b.Traffic,
		Wake: func(ctx context.Context, box sdk.Sandbox) error {
			if box.State != sdk.StatePaused {
				return nil
			}
			_, err := wake(ctx, daemon, &agboxv1.SandboxHandle{SandboxId: box.ID, Labels: box.Labels, State: agboxv1.SandboxState_SANDBOX_STATE_PAUSED})
			return err
		},
		Log: g.config.Log,
	})
}

// sees reports whether the request shows a token that sees the sandbox.
func (g *Gateway) sees(r *http.Request, sandboxID string) bool {
	id, err := g.access.Authenticate(r)
	if err != nil {
		return false
	}
	client, err := sdk.Over(g.access.Conn(id))
	if err == nil {
		_, err = client.GetSandbox(r.Context(), sandboxID)
	}
	return err == nil
}
