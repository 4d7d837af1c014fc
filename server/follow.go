package server

import (
	"google.golang.org/grpc"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// These are the calls that stay open: packages fleet and output serve them.

func (s *Server) SubscribeSandboxEvents(req *agboxv1.SubscribeSandboxEventsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	return s.fleet.SubscribeSandboxEvents(req, stream)
}

func (s *Server) WatchSandboxes(req *agboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxEvent]) error {
	return s.fleet.WatchSandboxes(req, stream)
}

func (s *Server) WatchStats(req *agboxv1.WatchStatsRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxStats]) error {
	return s.fleet.WatchStats(req, stream)
}

func (s *Server) AttachExec(stream grpc.BidiStreamingServer[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]) error {
	return s.output.Attach(stream)
}

func (s *Server) ReadExecLog(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk]) error {
	return s.output.ReadExec(req, stream)
}

func (s *Server) ReadSandboxLog(req *agboxv1.ReadSandboxLogRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxLogChunk]) error {
	return s.output.ReadSandbox(req, stream)
}
