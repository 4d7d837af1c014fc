package access

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

type peerKey struct{}

// WithPeer returns a context whose calls are recorded as from this address.
func WithPeer(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, peerKey{}, address)
}

func peerOf(ctx context.Context) (string, bool) {
	peer, ok := ctx.Value(peerKey{}).(string)
	return peer, ok
}

// reasonOf is the reason that a status gives, "" where it gives none.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
