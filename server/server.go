// Package server is the wire contract over a Unix socket: it parses, validates, asks the actors, and streams the
// log. It holds no state of its own.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// Config is what the server has to know beside its parts.
type Config struct {
	Version string
	// Host is what create specs are resolved against.
	Host spec.Host
}

// Logs tells where the output of an exec is.
type Logs interface {
	ExecLogs(sandboxID, execID string) (stdout, stderr string)
}

// Server serves agbox.v1.SandboxService, gRPC health and reflection.
type Server struct {
	agboxv1.UnimplementedSandboxServiceServer

	config  Config
	system  *actors.System
	db      *persist.DB
	runtime Logs
	log     *slog.Logger
	grpc    *grpc.Server
	health  *health.Server
	closing chan struct{}
	once    sync.Once
}

// New puts the parts together; Serve begins to answer.
func New(config Config, system *actors.System, db *persist.DB, runtime Logs, log *slog.Logger) *Server {
	s := &Server{config: config, system: system, db: db, runtime: runtime, log: log,
		health: health.NewServer(), closing: make(chan struct{})}
	s.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(s.recoverUnary), grpc.ChainStreamInterceptor(s.recoverStream))
	agboxv1.RegisterSandboxServiceServer(s.grpc, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(agboxv1.SandboxService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	reflection.Register(s.grpc)
	return s
}

// Listen makes the socket, mode 0600 in a directory of mode 0700, in place of a stale one. The caller holds the
// host lock, so nobody else listens there. Only processes of this user, and root's, get to connect.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("server: cannot make the socket's directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("server: cannot close the socket's directory to others: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("server: cannot remove the stale socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("server: cannot listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("server: cannot close the socket to others: %w", err), listener.Close())
	}
	return &ownerListener{Listener: listener, uid: os.Getuid()}, nil
}

// Serve answers until Shutdown; then it returns nil.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// drainTime is how long Shutdown lets calls end that are being answered.
const drainTime = 500 * time.Millisecond

// Shutdown ends every subscription with UNAVAILABLE and a hint to retry, lets other calls end for a moment, and
// returns when nothing is served any more. It may be called more than once.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.health.Shutdown()
		close(s.closing)
		cut := time.AfterFunc(drainTime, s.grpc.Stop)
		defer cut.Stop()
		s.grpc.GracefulStop()
	})
}

func (s *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer s.recovered(info.FullMethod, &err)
	return next(ctx, req)
}

func (s *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	return next(srv, stream)
}

// recovered keeps a defect in one call from ending the daemon.
func (s *Server) recovered(method string, err *error) {
	if reason := recover(); reason != nil {
		s.log.Error("call panicked", slog.String("method", method), slog.Any("reason", reason),
			slog.String("stack", string(debug.Stack())))
		*err = newStatus(codes.Internal, reasonInternal, "agboxd failed in "+method+": see its log", nil)
	}
}
