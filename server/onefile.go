package server

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/guest/files"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/output"
	"github.com/agbox-dev/agbox/server/refusal"
)

// userFiles is what a runtime does to single files, as a user of the sandbox; paths that are not absolute begin at that user's home.
type userFiles interface {
	ReadFile(ctx context.Context, sandboxID string, get files.Get, take func(info *agboxv1.FileInfo, data []byte) error) error
	WriteFile(ctx context.Context, sandboxID string, put files.Put, content io.Reader) (*agboxv1.FileInfo, error)
	MakeDirectory(ctx context.Context, sandboxID, user, path string, mode uint32, parents bool) (*agboxv1.FileInfo, error)
	MoveFile(ctx context.Context, sandboxID string, move files.Move) (*agboxv1.FileInfo, error)
}

const (
	reasonModeInvalid       = "FILE_MODE_INVALID"
	reasonAttributesInvalid = "FILE_ATTRIBUTES_INVALID"
)

// maxMode is all that chmod(2) knows.
const maxMode = 0o7777

// maxAttributes bounds the names and values of one file's attributes, in bytes, which is more than most file systems keep.
const maxAttributes = 16 << 10

func validateMode(mode *uint32) error {
	if mode != nil && *mode > maxMode {
		return refusal.New(codes.InvalidArgument, reasonModeInvalid, "mode", "%#o is no permissions; give 0 to %#o", *mode, maxMode)
	}
	return nil
}

func validateAttributes(start *agboxv1.WriteFileStart) error {
	size := len(start.RemoveAttributes)
	wrong := strings.ContainsRune(start.RemoveAttributes, 0)
	for name, value := range start.Attributes {
		size += len(name) + len(value)
		wrong = wrong || name == "" || strings.ContainsRune(name, 0)
	}
	if wrong || size > maxAttributes {
		return refusal.New(codes.InvalidArgument, reasonAttributesInvalid, "attributes",
			"a name is empty or has a NUL byte, or all have %d bytes, which are more than %d; name them otherwise, or keep them in a file", size, maxAttributes)
	}
	return nil
}

func (s *Server) ReadFile(req *agboxv1.ReadFileRequest, stream grpc.ServerStreamingServer[agboxv1.ReadFileChunk]) error {
	access, err := s.filesAs(stream.Context(), req.SandboxId, req.Path, &req.User, req.FromHome, true)
	if err != nil {
		return err
	}
	ctx, end := s.whileFree(stream.Context(), req.SandboxId)
	defer end()
	ctx, send, done := paced(s, ctx, stream)
	defer done()
	left := s.config.MaxTransfer
	get := files.Get{User: req.User, Path: access.path, Offset: min(req.Offset, maxOffset), Length: min(req.Length, maxOffset)}
	return because(ctx, s.runtime.ReadFile(ctx, req.SandboxId, get, func(info *agboxv1.FileInfo, data []byte) error {
		if s.config.MaxTransfer > 0 && uint64(len(data)) > left {
			return files.Refuse(files.ErrTooLarge, "the file has more than %d bytes: %s", s.config.MaxTransfer, whyTransfer)
		}
		left -= min(left, uint64(len(data)))
		for first := info != nil; first || len(data) > 0; first = false {
			n := min(len(data), output.MaxChunk)
			if err := send(&agboxv1.ReadFileChunk{File: info, Data: data[:n]}); err != nil {
				return err
			}
			info, data = nil, data[n:]
		}
		return nil
	}))
}

// maxOffset is the largest that a file can have.
const maxOffset = 1<<63 - 1

func (s *Server) WriteFile(stream grpc.ClientStreamingServer[agboxv1.WriteFileRequest, agboxv1.WriteFileResponse]) error {
	first, err := stream.Recv()
	if err != nil && err != io.EOF {
		return stream.Context().Err()
	}
	start := first.GetStart()
	if start == nil {
		return refusal.New(codes.InvalidArgument, reasonUploadMalformed, "start", "the first message has none; begin with one, the file's bytes follow")
	}
	access, err := s.filesAs(stream.Context(), start.SandboxId, start.Path, &start.User, start.FromHome, true)
	if err == nil {
		err = errors.Join(validateMode(start.Mode), validateAttributes(start))
	}
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
	content := newIncoming(s, ctx, stop, func() ([]byte, bool, error) {
		message, err := stream.Recv()
		return message.GetData(), message.GetStart() != nil, err
	})
	bounds := s.uploadBounds()
	info, err := s.runtime.WriteFile(ctx, start.SandboxId, files.Put{
		User: start.User, Path: access.path, Mode: start.Mode, InPlace: start.InPlace, Parents: start.Parents,
		Attributes: start.Attributes, RemoveAttributes: start.RemoveAttributes,
	}, &boundedFile{content, bounds.Bytes, bounds})
	if err != nil {
		if errors.Is(err, errStartAgain) {
			return refusal.New(codes.InvalidArgument, reasonUploadMalformed, "start", "it comes a second time; send nothing but data after the first message")
		}
		return because(ctx, err)
	}
	return stream.SendAndClose(&agboxv1.WriteFileResponse{File: info})
}

// boundedFile refuses what is beyond the bounds.
type boundedFile struct {
	io.Reader
	left   uint64
	bounds files.Bounds
}

func (b *boundedFile) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if uint64(n) > b.left {
		return 0, files.Refuse(files.ErrTooLarge, "the file has more than %d bytes: %s", b.bounds.Bytes, b.bounds.Why)
	}
	b.left -= uint64(n)
	return n, err
}

func (s *Server) MakeDirectory(ctx context.Context, req *agboxv1.MakeDirectoryRequest) (*agboxv1.MakeDirectoryResponse, error) {
	access, err := s.filesAs(ctx, req.SandboxId, req.Path, &req.User, req.FromHome, true)
	if err == nil {
		err = validateMode(req.Mode)
	}
	if err != nil {
		return nil, err
	}
	mode := uint32(files.NewDirectory)
	if req.Mode != nil {
		mode = *req.Mode
	}
	info, err := s.runtime.MakeDirectory(ctx, req.SandboxId, req.User, access.path, mode, req.Parents)
	if err != nil {
		return nil, err
	}
	return &agboxv1.MakeDirectoryResponse{Directory: info}, nil
}

func (s *Server) MoveFile(ctx context.Context, req *agboxv1.MoveFileRequest) (*agboxv1.MoveFileResponse, error) {
	from, err := s.filesAs(ctx, req.SandboxId, req.Source, &req.User, req.FromHome, true)
	if err != nil {
		return nil, err
	}
	to, err := s.filesAs(ctx, req.SandboxId, req.Destination, &req.User, req.FromHome, true)
	if err != nil {
		return nil, err
	}
	info, err := s.runtime.MoveFile(ctx, req.SandboxId, files.Move{
		User: req.User, Source: from.path, Destination: to.path, Parents: req.Parents, KeepExisting: req.KeepExisting})
	if err != nil {
		return nil, err
	}
	return &agboxv1.MoveFileResponse{File: info}, nil
}
