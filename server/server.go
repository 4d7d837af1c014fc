// Package server is the wire contract over a Unix socket: it parses, validates, asks the actors, and streams the
// log. It holds no state of its own.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/execlog"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
	"github.com/agbox-dev/agbox/server/meter"
	"github.com/agbox-dev/agbox/server/output"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// Config is what the server has to know beside its parts.
type Config struct {
	Version string
	// SnapshotTTL is how old snapshots get; 0: there is no limit.
	SnapshotTTL time.Duration
	// Host is what create specs are resolved against.
	Host spec.Host
	// DiskHeadroom, in bytes, is what creates, snapshots and uploads leave free on each disk; 0: they may fill it.
	DiskHeadroom uint64
	// MaxTransfer bounds the bytes of one upload or download, holes counted; 0: there is no limit.
	MaxTransfer uint64
	// Meter counts what is done; nil: one of the server's own.
	Meter *meter.Meter
	// Options are added to those of the gRPC server, for interceptors of tests.
	Options []grpc.ServerOption
}

// Runtime is what the server itself asks of the runtime; and of what holds the files of sandboxes.
type Runtime interface {
	runtime.Host
	runtime.Snapshots
	runtime.Ports
	output.Files
	fileRuntime
	layerRuntime
}

// Limits on clients. They are far above what programs need, and keep one that has gone wrong from taking the daemon's
// memory, or its descriptors, with it.
const (
	// handshakeTime is how long a connection may take to say that it speaks HTTP/2, and how long an answer to the
	// daemon's own ping may take.
	handshakeTime = 10 * time.Second
	// silentTime without a sign of life has a connection pinged, so that one whose peer is stuck ends.
	silentTime = 10 * time.Minute
	// pingInterval is how often a client may ping; one that does so more often is sent away.
	pingInterval = 10 * time.Second
	// maxConnections wait or are served at once, and never more than half of the descriptors; more wait in the
	// socket's backlog.
	maxConnections = 4096
	// maxStreams are the calls that one connection may have under way, above 1,000 subscriptions of one program.
	maxStreams = 2048
	// maxHeaders bounds the metadata of a call, in bytes.
	maxHeaders = 64 << 10
	// streamWindow and connectionWindow are how many bytes a client may send in advance. Fixed ones do not grow to 16 MiB for
	// an input that its command does not read.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// Server serves agbox.v1.SandboxService, gRPC health and reflection.
type Server struct {
	agboxv1.UnimplementedSandboxServiceServer

	config  Config
	system  *actors.System
	db      *persist.DB
	runtime Runtime
	log     *slog.Logger
	grpc    *grpc.Server
	health  *health.Server
	// closing ends, with actors.ErrShuttingDown, when Shutdown begins.
	closing context.Context
	close   context.CancelCauseFunc
	carried carried
	output  *output.Reader
	fleet   *fleet.Fleet
	// apart is what sends or receives apart from the handler, and ends with its stream.
	apart sync.WaitGroup
	// snapshotMade holds a token when a snapshot was made since retain has looked.
	snapshotMade chan struct{}
	once         sync.Once
	// walks holds a token for each layer that is being read.
	walks chan struct{}
}

// New puts the parts together; Serve begins to answer.
func New(config Config, system *actors.System, db *persist.DB, runtime Runtime, log *slog.Logger) *Server {
	s := &Server{config: config, system: system, db: db, runtime: runtime, log: log,
		health: health.NewServer(), walks: make(chan struct{}, maxWalks), snapshotMade: make(chan struct{}, 1)}
	if s.config.Meter == nil {
		s.config.Meter = meter.New()
	}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.fleet = fleet.New(system, db, runtime, log)
	s.output = output.NewReader(system, db, runtime, &execlog.Notices{Blind: func(err error) {
		log.Warn("output is followed by looking at its files again and again, which is slower", slog.Any("error", err))
	}})
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.UnaryInterceptor(s.config.Meter.Unary(s.unary)), grpc.StreamInterceptor(s.config.Meter.Stream(s.stream)), grpc.ForceServerCodecV2(fleet.Codec()),
		grpc.ConnectionTimeout(handshakeTime), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxRecvMsgSize(2 * refusal.MaxRequest),
		grpc.StatsHandler(&s.carried), grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silentTime, Timeout: handshakeTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval, PermitWithoutStream: true}),
	}, config.Options...)...)
	agboxv1.RegisterSandboxServiceServer(s.grpc, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(agboxv1.SandboxService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	reflection.Register(s.grpc)
	return s
}

// Serve answers until Shutdown, which may come first; then it returns nil.
func (s *Server) Serve(listener net.Listener) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("server: cannot tell how many files may be open: %w", err)
	}
	if s.config.SnapshotTTL > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		var retaining sync.WaitGroup
		retaining.Go(func() { s.retain(ctx) })
		defer retaining.Wait()
		defer cancel()
	}
	err := s.grpc.Serve(netutil.LimitListener(listener, int(min(maxConnections, files.Cur/2))))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// drainTime is how long Shutdown lets calls end that are being answered.
const drainTime = 500 * time.Millisecond

// Shutdown ends every subscription with UNAVAILABLE and a hint to retry, lets other calls end for a moment, and
// returns when nothing is served any more. It may be called more than once.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.system.KeepLeases()
		s.health.Shutdown()
		s.close(actors.ErrShuttingDown)
		cut := time.AfterFunc(drainTime, s.grpc.Stop)
		defer cut.Stop()
		s.grpc.GracefulStop()
		s.apart.Wait()
		s.output.Wait()
	})
}
