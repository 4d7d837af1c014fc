package server

import (
	"errors"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/guest/files"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// WatchFiles tells of changes until the client leaves, the watched directory is gone, or the sandbox stops to run. A sandbox
// that is paused only has nothing to tell. A client that does not read holds a few messages; what happens meanwhile waits in
// the sandbox's kernel, and "overflow" tells when it was too much.
func (s *Server) WatchFiles(req *agboxv1.WatchFilesRequest, stream grpc.ServerStreamingServer[agboxv1.FileEvent]) error {
	access, err := s.filesAs(stream.Context(), req.SandboxId, req.Path, req.User, req.FromHome, true)
	if err != nil {
		return err
	}
	over := func(state lifecycle.State) error {
		return unreachable(state, "the watch has ended; watch again once it runs")
	}
	ctx, end := s.whileState(stream.Context(), req.SandboxId, func(state lifecycle.State) error {
		if !state.Up() || state.Operation == lifecycle.Stopping || state.Operation == lifecycle.Killing {
			return over(state)
		}
		return nil
	})
	defer end()
	err = s.runtime.WatchFiles(ctx, req.SandboxId, access.path, req.Recursive, asked(req.User, req.FromHome), stream.Send)
	if errors.Is(err, files.ErrNotRunning) { // its processes ended before the log told so
		view, viewErr := s.system.Sandbox(req.SandboxId)
		if viewErr != nil {
			return viewErr
		}
		err = over(view.State)
	}
	if err != nil {
		return because(ctx, err)
	}
	return nil
}
