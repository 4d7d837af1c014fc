package server

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
)

// Limits on calls that carry output or files. One whose client does not read holds about 145 KB of the daemon's memory for as
// long as the client stays.
const (
	// maxCarried are those of one connection, for one program that follows all of its commands.
	maxCarried = 320
	// maxCarriedInAll keeps what all clients together hold by not reading below 60 MB.
	maxCarriedInAll = 384
	// reservedCalls of them are for connections that have no more than a few, such as those of the command line: a program that
	// follows everything leaves them room.
	reservedCalls = 64
	fewCalls      = 4
)

const reasonTooManyStreams = "TOO_MANY_STREAMS"

// carried counts the calls that carry output or files, by connection. As a stats.Handler it tells the connections apart.
type carried struct {
	mu  sync.Mutex
	all int
}

// connection is one client's; its count is guarded by carried.mu.
type connection struct{ count int }

type connectionKey struct{}

var _ stats.Handler = (*carried)(nil)

func (c *carried) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

func (c *carried) HandleConn(context.Context, stats.ConnStats) {}

func (c *carried) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *carried) HandleRPC(context.Context, stats.RPCStats) {}

// begin counts a call, and refuses one too many; end must follow where err is nil.
func (c *carried) begin(ctx context.Context) (end func(), err error) {
	conn, _ := ctx.Value(connectionKey{}).(*connection)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case conn == nil: // not over a connection of ours
		return func() {}, nil
	case conn.count >= maxCarried:
		return nil, tooMany("this connection has", maxCarried)
	case conn.count >= fewCalls && c.all >= maxCarriedInAll-reservedCalls:
		return nil, tooMany(fmt.Sprintf("clients with %d calls or more together have", fewCalls), maxCarriedInAll-reservedCalls)
	case c.all >= maxCarriedInAll:
		return nil, tooMany("all clients together have", maxCarriedInAll)
	}
	conn.count++
	c.all++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		conn.count--
		c.all--
	}, nil
}

func tooMany(who string, most int) error {
	return refusal.New(codes.ResourceExhausted, reasonTooManyStreams, "",
		"%s %d calls under way that carry output or files: end some, or read the output from its files", who, most)
}

// carrying are the calls that carry output or files. Those that carry events hold no more than gRPC's own 64 KiB each, and are
// bounded by the connection's calls.
var carrying = map[string]bool{
	agboxv1.SandboxService_ReadExecLog_FullMethodName:     true,
	agboxv1.SandboxService_ReadSandboxLog_FullMethodName:  true,
	agboxv1.SandboxService_AttachExec_FullMethodName:      true,
	agboxv1.SandboxService_DownloadFiles_FullMethodName:   true,
	agboxv1.SandboxService_UploadFiles_FullMethodName:     true,
	agboxv1.SandboxService_DownloadChanges_FullMethodName: true,
	agboxv1.SandboxService_ReadFile_FullMethodName:        true,
	agboxv1.SandboxService_WriteFile_FullMethodName:       true,
	agboxv1.SandboxService_Backup_FullMethodName:          true,
}
