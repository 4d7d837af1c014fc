package raw

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Backup writes the daemon's database, as it is at one moment, to a file of the caller's. Only what was written when it
// returns nil is whole.
func (c *Client) Backup(ctx context.Context, to io.Writer) error {
	stream, err := receive(ctx, c, &agboxv1.BackupRequest{}, c.rpc.Backup)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := to.Write(chunk.Data); err != nil {
			return err
		}
	}
}
