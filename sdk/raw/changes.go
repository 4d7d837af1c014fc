package raw

import (
	"context"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Changes is one list of what a sandbox changed.
type Changes = Receiver[agboxv1.SandboxChangesResponse]

// SandboxChanges opens a list that lives as long as ctx, at most. What the daemon refuses, the first Recv tells. Close must
// follow.
func (c *Client) SandboxChanges(ctx context.Context, req *agboxv1.SandboxChangesRequest) (*Changes, error) {
	return receive(ctx, c, req, c.rpc.SandboxChanges)
}

// DownloadChanges opens a tar stream that lives as long as ctx, at most. What the daemon refuses, the first Read tells. Close
// must follow.
func (c *Client) DownloadChanges(ctx context.Context, req *agboxv1.DownloadChangesRequest) (*DownloadStream, error) {
	chunks, err := receive(ctx, c, req, c.rpc.DownloadChanges)
	if err != nil {
		return nil, err
	}
	return &DownloadStream{chunks: chunks}, nil
}
