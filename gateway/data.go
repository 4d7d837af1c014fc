package gateway

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/agbox-dev/agbox/gateway/envd"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// data is E2B's data plane over the daemon, each request as far as who holds its sandbox's token may go.
func (g *Gateway) data(conn grpc.ClientConnInterface) *envd.Handler {
	daemon := agboxv1.NewSandboxServiceClient(conn)
	return envd.New(envd.Config{
		Client: func(id string) agboxv1.SandboxServiceClient {
			return agboxv1.NewSandboxServiceClient(g.access.Conn(access.ForSandbox(id)))
		},
		Token: g.access.SandboxToken,
		Sandboxes: func(ctx context.Context) ([]string, error) {
			list, err := daemon.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{e2b.LabelKind: e2b.KindSandbox}})
			var ids []string
			for _, box := range list.GetSandboxes() {
				ids = append(ids, box.SandboxId)
			}
			return ids, err
		},
		Wake: func(ctx context.Context, box *agboxv1.SandboxHandle) (bool, error) { return wake(ctx, daemon, box) },
		Log:  g.config.Log,
	})
}

// wake lets a paused sandbox go on that is to do so when it is asked for something, for as long as it was created for.
func wake(ctx context.Context, daemon agboxv1.SandboxServiceClient, box *agboxv1.SandboxHandle) (bool, error) {
	life := e2b.Timeout(box.GetLabels())
	if life == 0 || box.GetState() != agboxv1.SandboxState_SANDBOX_STATE_PAUSED {
		return false, nil
	}
	if _, err := daemon.ExtendSandbox(ctx, &agboxv1.ExtendSandboxRequest{SandboxId: box.SandboxId, MaxDuration: durationpb.New(life)}); err != nil {
		return false, err
	}
	if _, err := daemon.UnpauseSandbox(ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: box.SandboxId}); err != nil {
		return false, err
	}
	ready := []agboxv1.SandboxState{agboxv1.SandboxState_SANDBOX_STATE_READY}
	woken, err := daemon.WaitSandbox(ctx, &agboxv1.WaitSandboxRequest{SandboxId: box.SandboxId, States: ready})
	return woken.GetReached(), err
}
