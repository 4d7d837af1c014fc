package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/hosttree/layer"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/output"
	"github.com/agbox-dev/agbox/server/refusal"
	"github.com/agbox-dev/agbox/server/spec"
	"github.com/agbox-dev/agbox/text"
)

// layerRuntime is what a runtime knows of copy-on-write mounts: index is the mount's in the spec. Errors are those of package
// layer.
type layerRuntime interface {
	Changes(ctx context.Context, sandboxID string, index int, source string, visit func(*layer.Change) error) error
	ChangesTar(ctx context.Context, sandboxID string, index int, source string, to io.Writer) error
}

const (
	reasonNotCopyOnWrite   = "MOUNT_NOT_COPY_ON_WRITE"
	reasonChangesPrivilege = "CHANGES_NEED_PRIVILEGE"
	reasonChangesUnstable  = "CHANGES_UNSTABLE"
)

// maxWalks are the layers that are read at once, each with up to 512 open files; others wait.
const maxWalks = 8

// A message holds so many changes or bytes of them at most, whichever comes first.
const (
	maxChanges     = 512
	maxChangeBytes = 64 << 10
)

// listedBefore is how much older than a change the time of a file may be: the kernel counts it in steps of up to 10 ms.
const listedBefore = 10 * time.Millisecond

func (s *Server) SandboxChanges(req *agboxv1.SandboxChangesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxChangesResponse]) error {
	ctx, send, done := paced(s, stream.Context(), stream)
	defer done()
	return s.changes(ctx, req.SandboxId, "targets", req.Targets, func(ctx context.Context, index int, m *agboxv1.MountSpec) error {
		out := &changeStream{send: send, next: &agboxv1.SandboxChangesResponse{Mount: &agboxv1.ChangedMount{
			Target: m.Target, Source: m.Source, ListedAt: timestamppb.New(time.Now().Add(-listedBefore))}}}
		err := s.runtime.Changes(ctx, req.SandboxId, index, m.Source, out.add)
		if err != nil {
			return err
		}
		return out.flush()
	})
}

func (s *Server) DownloadChanges(req *agboxv1.DownloadChangesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	ctx, send, done := paced(s, stream.Context(), stream)
	defer done()
	return s.changes(ctx, req.SandboxId, "target", []string{req.Target}, func(ctx context.Context, index int, m *agboxv1.MountSpec) error {
		out := bufio.NewWriterSize(&chunks{send: send, most: s.config.MaxTransfer}, output.MaxChunk)
		if err := s.runtime.ChangesTar(ctx, req.SandboxId, index, m.Source, out); err != nil {
			return err
		}
		return out.Flush()
	})
}

// chunks sends what is written, in messages of output.MaxChunk at most, and no more than most bytes in all, 0 for no bound: a file
// may have grown, or become a hole, since it was looked at.
type chunks struct {
	send       func(*agboxv1.DownloadFilesChunk) error
	sent, most uint64
}

func (c *chunks) Write(p []byte) (int, error) {
	if c.sent += uint64(len(p)); c.most > 0 && c.sent > c.most {
		return 0, files.Refuse(files.ErrTooLarge, "what was changed has more than %d bytes, holes counted: %s", c.most, whyTransfer)
	}
	for part := range slices.Chunk(p, output.MaxChunk) {
		if err := c.send(&agboxv1.DownloadFilesChunk{Data: part}); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// changes does something with the copy-on-write mounts that have these targets, with all of them for none. It ends when the
// sandbox is about to be removed.
func (s *Server) changes(ctx context.Context, sandboxID, field string, targets []string, do func(context.Context, int, *agboxv1.MountSpec) error) error {
	view, err := s.system.Sandbox(sandboxID)
	if err != nil {
		return err
	}
	if err := kept(view.State); err != nil {
		return err
	}
	chosen, err := copyOnWrite(view.Spec, field, targets)
	if err != nil {
		return err
	}
	select {
	case s.walks <- struct{}{}:
		defer func() { <-s.walks }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, end := s.whileState(ctx, sandboxID, kept)
	defer end()
	for _, index := range chosen {
		err := do(ctx, index, view.Spec.Mounts[index])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return unreadable(err, sandboxID)
		}
	}
	return nil
}

// copyOnWrite returns the indices of the mounts with these targets, of all for none.
func copyOnWrite(of *agboxv1.CreateSpec, field string, targets []string) ([]int, error) {
	var all []string
	var chosen []int
	for i, m := range of.Mounts {
		if m.Mode == spec.ModeCopyOnWrite {
			all = append(all, m.Target)
			if len(targets) == 0 || slices.Contains(targets, m.Target) {
				chosen = append(chosen, i)
			}
		}
	}
	for i, target := range targets {
		if slices.Contains(all, target) {
			continue
		}
		if field == "targets" {
			field = fmt.Sprintf("targets[%d]", i)
		}
		advice := "the sandbox has none"
		if len(all) > 0 {
			advice = "choose from " + strings.Join(all, ", ")
		}
		return nil, refusal.New(codes.InvalidArgument, reasonNotCopyOnWrite, field, "%q is not the target of a copy-on-write mount; %s", text.Bound(target, maxValue), advice)
	}
	return chosen, nil
}

// kept refuses a sandbox in a state in which it has no layers.
func kept(state lifecycle.State) error {
	switch state.Phase {
	case lifecycle.Deleted, agboxv1.SandboxState_SANDBOX_STATE_DELETING, agboxv1.SandboxState_SANDBOX_STATE_DORMANT:
		return &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState,
			Message: fmt.Sprintf("sandbox %s, which is %s, has no changes", state.SandboxID, stateName(state.Phase))}
	}
	return nil
}

// unreadable is the refusal that an error of package layer means.
func unreadable(err error, sandboxID string) error {
	switch {
	case errors.Is(err, layer.ErrPrivilege):
		return refusal.New(codes.FailedPrecondition, reasonChangesPrivilege, "", "what a sandbox changed can be read by a daemon that runs as root only: "+
			"run agboxd as root, or copy what is needed out with agbox cp")
	case errors.Is(err, layer.ErrUnstable):
		return refusal.New(codes.Aborted, reasonChangesUnstable, "", "%v: pause or stop sandbox %s and start again", err, sandboxID)
	case errors.Is(err, layer.ErrGone):
		return &lifecycle.Refusal{Kind: lifecycle.ErrInvalidState, Message: "sandbox " + sandboxID + " has no changes: its layers were not made yet, or are gone"}
	}
	return err
}

// changeStream gathers changes into messages. The first of a mount is sent also without any.
type changeStream struct {
	send  func(*agboxv1.SandboxChangesResponse) error
	next  *agboxv1.SandboxChangesResponse
	bytes int
}

func (c *changeStream) add(change *layer.Change) error {
	wire := changeOnWire(change)
	size := proto.Size(wire)
	if len(c.next.Changes) >= maxChanges || c.bytes > 0 && c.bytes+size > maxChangeBytes {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.next.Changes, c.bytes = append(c.next.Changes, wire), c.bytes+size
	return nil
}

func (c *changeStream) flush() error {
	if c.next.Mount == nil && len(c.next.Changes) == 0 {
		return nil
	}
	sent := c.next
	c.next, c.bytes = &agboxv1.SandboxChangesResponse{}, 0
	return c.send(sent)
}

func changeOnWire(c *layer.Change) *agboxv1.Change {
	wire := &agboxv1.Change{Kind: c.Kind, Type: c.Type, OldType: c.OldType, SizeBytes: uint64(c.Size), Mode: c.Mode,
		ModifiedAt: timestamppb.New(c.ModTime), Conflict: c.Conflict, Problem: c.Problem}
	wire.Path, wire.PathBytes = textAndBytes(c.Path)
	wire.LinkTarget, wire.LinkTargetBytes = textAndBytes(c.LinkTarget)
	return wire
}

// textAndBytes returns a name as text, and its bytes where it is none.
func textAndBytes(name string) (string, []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, "\uFFFD"), []byte(name)
}
