package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/guest/files"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/output"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
)

// fileRuntime is what a runtime does for files. Paths are absolute and clean; refusals are *files.Refusal. running says that
// the primary's processes run, and are not frozen.
type fileRuntime interface {
	UploadFiles(ctx context.Context, sandboxID, directory, owner string, running bool, stream io.Reader) (files.Written, error)
	DownloadFiles(ctx context.Context, sandboxID, path string, running bool) (io.ReadCloser, error)
	StatFile(ctx context.Context, sandboxID, path string, running bool, look files.Look) (*agboxv1.FileInfo, error)
	ListFiles(ctx context.Context, sandboxID, directory string, recursive, running bool, look files.Look, list *files.List) error
	RemoveFile(ctx context.Context, sandboxID, path string, recursive bool, user *string) error
	WatchFiles(ctx context.Context, sandboxID, path string, recursive bool, user *string, tell func(*agboxv1.FileEvent) error) error
	userFiles
}

// Refusals of files.
const (
	reasonPathInvalid      = "PATH_INVALID"
	reasonPathEscapes      = "PATH_ESCAPES"
	reasonPathReserved     = "PATH_RESERVED"
	reasonFileNotFound     = "FILE_NOT_FOUND"
	reasonNotDirectory     = "FILE_NOT_A_DIRECTORY"
	reasonIsDirectory      = "FILE_IS_A_DIRECTORY"
	reasonFileExists       = "FILE_EXISTS"
	reasonFileDenied       = "FILE_PERMISSION_DENIED"
	reasonFileNoSpace      = "FILE_NO_SPACE"
	reasonNotEmpty         = "DIRECTORY_NOT_EMPTY"
	reasonReadOnly         = "FILE_READ_ONLY"
	reasonMounted          = "FILE_MOUNTED"
	reasonInMemory         = "FILE_IN_MEMORY"
	reasonTarEntry         = "TAR_ENTRY_REFUSED"
	reasonTarInvalid       = "TAR_INVALID"
	reasonTooLargeTransfer = "TRANSFER_TOO_LARGE"
	reasonTooDeep          = "TREE_TOO_DEEP"
	reasonOwnerUnknown     = "OWNER_UNKNOWN"
	reasonFileRefused      = "FILE_REFUSED"
	reasonUploadMalformed  = "UPLOAD_MALFORMED"
)

var fileKinds = []struct {
	is     error
	code   codes.Code
	reason string
	field  string
}{
	{files.ErrPath, codes.InvalidArgument, reasonPathInvalid, "path"},
	{files.ErrEscapes, codes.InvalidArgument, reasonPathEscapes, "data"},
	{files.ErrReserved, codes.InvalidArgument, reasonPathReserved, "path"},
	{files.ErrNotFound, codes.NotFound, reasonFileNotFound, "path"},
	{files.ErrNotDirectory, codes.FailedPrecondition, reasonNotDirectory, "path"},
	{files.ErrIsDirectory, codes.FailedPrecondition, reasonIsDirectory, "path"},
	{files.ErrExists, codes.AlreadyExists, reasonFileExists, "path"},
	{files.ErrDenied, codes.PermissionDenied, reasonFileDenied, "path"},
	{files.ErrNoSpace, codes.ResourceExhausted, reasonFileNoSpace, "path"},
	{files.ErrNotEmpty, codes.FailedPrecondition, reasonNotEmpty, "path"},
	{files.ErrReadOnly, codes.FailedPrecondition, reasonReadOnly, "path"},
	{files.ErrMounted, codes.FailedPrecondition, reasonMounted, "path"},
	{files.ErrMemory, codes.FailedPrecondition, reasonInMemory, "path"},
	{files.ErrEntry, codes.InvalidArgument, reasonTarEntry, "data"},
	{files.ErrTar, codes.InvalidArgument, reasonTarInvalid, "data"},
	{files.ErrTooLarge, codes.ResourceExhausted, reasonTooLargeTransfer, "path"},
	{files.ErrTooDeep, codes.FailedPrecondition, reasonTooDeep, "path"},
	{files.ErrOwner, codes.FailedPrecondition, reasonOwnerUnknown, "owner"},
	{files.ErrRefused, codes.FailedPrecondition, reasonFileRefused, "path"},
}

// errStalled ends a transfer that stands still.
var errStalled = errors.New("the transfer was cut off: for a minute the client has neither sent nor read, or the engine has done nothing: start it again")

// stallTime is how long a transfer may stand still. The engine answers nothing else about a container meanwhile.
const stallTime = time.Minute

// fileAccess is one call's way to a sandbox's files.
type fileAccess struct {
	view actors.View
	path string // absolute and clean
}

// files makes a lazy sandbox and finds out whether its files can be reached; with run, whether its processes run.
func (s *Server) files(ctx context.Context, sandboxID, path string, run bool) (fileAccess, error) {
	if err := s.system.Use(ctx, sandboxID); err != nil {
		return fileAccess{}, err
	}
	view, err := s.system.Sandbox(sandboxID)
	if err != nil {
		return fileAccess{}, err
	}
	directory := view.Spec.GetWorkingDir()
	if directory == "" {
		directory = "/workspace"
	}
	clean, err := files.Clean(directory, path)
	if err != nil {
		return fileAccess{}, err
	}
	state := view.State
	switch {
	case state.Up():
		return fileAccess{view, clean}, nil
	case run:
		return fileAccess{}, unreachable(state, "for this it has to run: resume it or wait until it is READY")
	case state.Operation == lifecycle.NoOperation && (state.Phase == lifecycle.Stopped || state.Phase == lifecycle.Failed):
		return fileAccess{view, clean}, nil
	}
	return fileAccess{}, unreachable(state, "its files can be reached while it is READY, PAUSED, DRAINING, STOPPED or FAILED")
}

// filesAs is files for what a user asks for, or for what needs that the sandbox's processes are asked: then they have to run, and the path may be
// one from the user's home on. Without user and fromHome it is files.
func (s *Server) filesAs(ctx context.Context, sandboxID, path string, user *string, fromHome, run bool) (access fileAccess, err error) {
	if user == nil && !fromHome {
		return s.files(ctx, sandboxID, path, run)
	}
	if err := spec.ValidateUser("user", value(user)); err != nil {
		return fileAccess{}, err
	}
	named := path
	if fromHome {
		named = cmp.Or(path, ".")
	}
	if access, err = s.files(ctx, sandboxID, named, true); err == nil && !access.running() {
		err = unreachable(access.view.State, "for this its processes have to run: unpause it or wait until it is READY")
	}
	if err == nil && fromHome {
		access.path, err = files.FromHome(path)
	}
	return access, err
}

// asked is whose rights count, nil for the daemon's own.
func asked(user *string, fromHome bool) *string {
	if user == nil && fromHome {
		return new(string)
	}
	return user
}

func value(user *string) string {
	if user == nil {
		return ""
	}
	return *user
}

func unreachable(state lifecycle.State, advice string) error {
	return &lifecycle.Refusal{Kind: lifecycle.ErrNotReady,
		Message: fmt.Sprintf("sandbox %s is %s: %s", state.SandboxID, stateName(state.Phase), advice)}
}

// running reports whether the sandbox's processes can be asked.
func (a fileAccess) running() bool {
	state := a.view.State
	return (state.Phase == lifecycle.Ready || state.Phase == lifecycle.Draining) && state.Operation == lifecycle.NoOperation
}

// whileFree returns a context that ends, with the cause, when an operation on the sandbox begins, for the engine would let
// it wait for a transfer; and when the server closes. end must be called, and waits.
func (s *Server) whileFree(ctx context.Context, sandboxID string) (_ context.Context, end func()) {
	return s.whileState(ctx, sandboxID, func(state lifecycle.State) error {
		if state.Operation == lifecycle.NoOperation {
			return nil
		}
		return &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState, Message: fmt.Sprintf(
			"the transfer was cut off by the %s of sandbox %s, which is %s: start it again when that is over", lifecycle.Verb(state.Operation), sandboxID, stateName(state.Phase))}
	})
}

func (s *Server) whileState(ctx context.Context, sandboxID string, wrong func(lifecycle.State) error) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		cancel(s.until(ctx, sandboxID, nil, func() (bool, error) {
			view, err := s.system.Sandbox(sandboxID)
			if err == nil {
				err = wrong(view.State)
			}
			return false, err
		}))
	})
	return ctx, func() { cancel(nil); looking.Wait() }
}

func (s *Server) UploadFiles(stream grpc.ClientStreamingServer[agboxv1.UploadFilesRequest, agboxv1.UploadFilesResponse]) error {
	first, err := stream.Recv()
	if err != nil && err != io.EOF {
		return stream.Context().Err()
	}
	start := first.GetStart()
	if start == nil {
		return refusal.New(codes.InvalidArgument, reasonUploadMalformed, "start", "the first message has none; begin with one, the tar stream follows")
	}
	if err := spec.ValidateUser("owner", start.Owner); err != nil {
		return err
	}
	access, err := s.files(stream.Context(), start.SandboxId, start.Path, false)
	if err == nil {
		err = s.room()
	}
	if err != nil {
		return err
	}
	ctx, end := s.whileFree(stream.Context(), start.SandboxId)
	defer end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	incoming := newIncoming(s, ctx, stop, func() ([]byte, bool, error) {
		message, err := stream.Recv()
		return message.GetData(), message.GetStart() != nil, err
	})
	written, err := s.runtime.UploadFiles(ctx, start.SandboxId, access.path, start.Owner, access.running(), files.Bound(incoming, s.uploadBounds()))
	if err != nil {
		if errors.Is(err, errStartAgain) {
			return refusal.New(codes.InvalidArgument, reasonUploadMalformed, "start", "it comes a second time; send nothing but data after the first message")
		}
		return because(ctx, err)
	}
	return stream.SendAndClose(&agboxv1.UploadFilesResponse{Files: written.Files, Bytes: written.Bytes})
}

// incoming is what an upload carries. What receives it lives as long as the call.
type incoming struct {
	ctx    context.Context
	parts  chan []byte
	rest   []byte
	failed error // set before parts is closed
}

var errStartAgain = errors.New("a second start")

// newIncoming takes what recv returns: data, and whether the message is another start.
func newIncoming(s *Server, ctx context.Context, stop context.CancelCauseFunc, recv func() ([]byte, bool, error)) *incoming {
	in := &incoming{ctx: ctx, parts: make(chan []byte)}
	s.apart.Go(func() { // Recv ends with the call
		stalled := time.AfterFunc(stallTime, func() { stop(errStalled) })
		defer stalled.Stop()
		defer close(in.parts)
		for {
			data, again, err := recv()
			stalled.Reset(2 * stallTime) // from here on it is the sandbox, which has a bound of its own, or the engine that takes its time
			if err != nil {
				if in.failed = err; err != io.EOF {
					stop(context.Canceled)
				}
				return
			}
			if again {
				in.failed = errStartAgain
				return
			}
			select {
			case in.parts <- data:
				stalled.Reset(stallTime)
			case <-ctx.Done():
				return
			}
		}
	})
	return in
}

func (in *incoming) Read(p []byte) (int, error) {
	for len(in.rest) == 0 {
		select {
		case part, more := <-in.parts:
			if !more {
				return 0, in.end()
			}
			in.rest = part
		case <-in.ctx.Done():
			return 0, context.Cause(in.ctx)
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *incoming) end() error {
	if in.failed == nil {
		return context.Cause(in.ctx)
	}
	return in.failed
}

func (s *Server) DownloadFiles(req *agboxv1.DownloadFilesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	access, err := s.files(stream.Context(), req.SandboxId, req.Path, false)
	if err != nil {
		return err
	}
	ctx, end := s.whileFree(stream.Context(), req.SandboxId)
	defer end()
	ctx, send, done := paced(s, ctx, stream)
	defer done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	reading := time.AfterFunc(stallTime, func() { stop(errStalled) })
	defer reading.Stop()
	from, err := s.runtime.DownloadFiles(ctx, req.SandboxId, access.path, access.running())
	if err != nil {
		return because(ctx, err)
	}
	defer from.Close()
	bounded := files.Bound(from, s.downloadBounds(access.path))
	buffer := make([]byte, output.MaxChunk)
	for {
		reading.Reset(stallTime)
		n, err := bounded.Read(buffer)
		reading.Stop()
		if n > 0 {
			// The message is not kept: it is encoded first.
			if err := send(&agboxv1.DownloadFilesChunk{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return because(ctx, err)
		}
	}
}

func (s *Server) StatFile(ctx context.Context, req *agboxv1.StatFileRequest) (*agboxv1.StatFileResponse, error) {
	access, err := s.filesAs(ctx, req.SandboxId, req.Path, req.User, req.FromHome, false)
	if err != nil {
		return nil, err
	}
	info, err := s.runtime.StatFile(ctx, req.SandboxId, access.path, access.running(), files.Look{User: asked(req.User, req.FromHome), Attributes: req.Attributes})
	if err != nil {
		return nil, err
	}
	return &agboxv1.StatFileResponse{File: info}, nil
}

func (s *Server) ListFiles(ctx context.Context, req *agboxv1.ListFilesRequest) (*agboxv1.ListFilesResponse, error) {
	access, err := s.filesAs(ctx, req.SandboxId, req.Path, req.User, req.FromHome, false)
	if err != nil {
		return nil, err
	}
	list := files.NewList(req.Limit)
	if !access.running() { // the engine is asked, as for a transfer
		var end func()
		ctx, end = s.whileFree(ctx, req.SandboxId)
		defer end()
	}
	look := files.Look{User: asked(req.User, req.FromHome), Attributes: req.Attributes, Depth: req.Depth}
	if err := s.runtime.ListFiles(ctx, req.SandboxId, access.path, req.Recursive, access.running(), look, list); err != nil {
		return nil, because(ctx, err)
	}
	return &agboxv1.ListFilesResponse{Files: list.Files, Truncated: list.Truncated}, nil
}

func (s *Server) RemoveFile(ctx context.Context, req *agboxv1.RemoveFileRequest) (*agboxv1.RemoveFileResponse, error) {
	access, err := s.filesAs(ctx, req.SandboxId, req.Path, req.User, req.FromHome, true)
	if err == nil && !access.running() {
		err = unreachable(access.view.State, "for this its processes have to run: unpause it or wait until it is READY")
	}
	if err == nil {
		err = s.runtime.RemoveFile(ctx, req.SandboxId, access.path, req.Recursive, asked(req.User, req.FromHome))
	}
	if err != nil {
		return nil, err
	}
	return &agboxv1.RemoveFileResponse{}, nil
}
