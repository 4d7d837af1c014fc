package sdk

import (
	"context"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// SandboxStats is one reading of what a sandbox uses: of the primary first, then of each service that runs.
type SandboxStats struct {
	SandboxID  string
	Containers []Stats
}

// WatchStats yields what every sandbox with these labels uses while it runs, those that come later included, and with no
// labels that of all. The interval between two readings is at least 100 ms; 0 is the daemon's, one second. A reader that
// is slower than that misses readings, but for those that the connection has buffered. It ends with one last error: the context's,
// ErrUnavailable when the daemon went away or never was there. Leaving the loop ends it as well.
func (c *Client) WatchStats(ctx context.Context, labels map[string]string, interval time.Duration) iter.Seq2[SandboxStats, error] {
	req := &agboxv1.WatchStatsRequest{LabelSelector: labels}
	if interval != 0 {
		req.Interval = durationpb.New(interval)
	}
	return streamed(func() (*raw.StatsStream, error) { return c.raw.WatchStats(ctx, req) }, io.EOF, func(p *agboxv1.SandboxStats) SandboxStats {
		return SandboxStats{SandboxID: p.GetSandboxId(), Containers: statsOf(p.GetContainers())}
	})
}
