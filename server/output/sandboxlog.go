package output

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
)

const (
	// reasonLogSource is the refusal of a log that no sandbox has.
	reasonLogSource = "SANDBOX_LOG_SOURCE_INVALID"
	// reasonServiceName: a service's log without its name, or a name with another log.
	reasonServiceName = "SERVICE_NAME_INVALID"
	// reasonServiceNotFound: the sandbox's spec has no such service.
	reasonServiceNotFound = "SERVICE_NOT_FOUND"
	// reasonServiceNotMade: the service has no container, yet or any more.
	reasonServiceNotMade = "SERVICE_NOT_MADE"
)

// ReadSandbox is the call ReadSandboxLog. It sends a log as it is when asked, or with follow as it grows.
func (r *Reader) ReadSandbox(req *agboxv1.ReadSandboxLogRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxLogChunk]) error {
	view, err := r.sandboxes.Sandbox(req.SandboxId)
	if err != nil {
		return err
	}
	if req.Source != "service" && req.ServiceName != "" {
		return refusal.New(codes.InvalidArgument, reasonServiceName, "service_name", "%q is given with source %q: use source service, or leave it out", req.ServiceName, req.Source)
	}
	l := &sandboxLog{reader: r, req: req, stream: stream}
	stdout, stderr := r.files.ExecLogs(req.SandboxId, runtime.CommandID)
	switch req.Source {
	case "", "operations":
		return l.operations()
	case "stdout":
		return l.output(stdout)
	case "stderr":
		return l.output(stderr)
	case "service":
		return l.service(view)
	}
	return refusal.New(codes.InvalidArgument, reasonLogSource, "source", "%q is no log of a sandbox: use operations, stdout, stderr or service", req.Source)
}

// sandboxLog is one client's reading.
type sandboxLog struct {
	reader *Reader
	req    *agboxv1.ReadSandboxLogRequest
	stream grpc.ServerStreamingServer[agboxv1.SandboxLogChunk]
}

func (l *sandboxLog) send(_ int64, data []byte) error {
	return l.stream.Send(&agboxv1.SandboxLogChunk{Data: data})
}

// running is a follower's state of what writes as long as the sandbox is not over.
func (l *sandboxLog) running(over func(lifecycle.State) bool) func() (agboxv1.ExecState, error) {
	return func() (agboxv1.ExecState, error) {
		view, err := l.reader.sandboxes.Sandbox(l.req.SandboxId)
		switch {
		case errors.Is(err, actors.ErrNotFound): // only the history of a DELETED sandbox goes
		case err != nil:
			return 0, err
		case !over(view.State):
			return agboxv1.ExecState_EXEC_STATE_RUNNING, nil
		}
		return agboxv1.ExecState_EXEC_STATE_CANCELLED, nil // there need not be a file
	}
}

func (l *sandboxLog) follower(over func(lifecycle.State) bool, tails ...*tail) *follower {
	return &follower{reader: l.reader, ctx: l.stream.Context(), owner: l.req.SandboxId, what: "the log",
		tails: tails, state: l.running(over)}
}

// silent: nothing of the sandbox's own writes any more. A stop, until it is done, leaves time for last words.
func silent(state lifecycle.State) bool {
	switch state.Phase {
	case lifecycle.Stopped, lifecycle.Failed, lifecycle.Deleting, lifecycle.Deleted:
		return true
	}
	return state.Up() && state.CommandEnded
}

func gone(state lifecycle.State) bool { return state.Phase == lifecycle.Deleted }

// output sends what the sandbox's own command, or without one the image's entrypoint, has written.
func (l *sandboxLog) output(path string) error {
	t := newTail(path, l.send)
	defer t.close()
	if l.req.TailBytes != nil {
		if err := t.beforeEnd(l.req.GetTailBytes()); err != nil {
			return err
		}
	}
	f := l.follower(silent, t)
	if !l.req.Follow {
		return f.send(agboxv1.ExecState_EXEC_STATE_CANCELLED)
	}
	if err := f.directory(path); err != nil {
		return err
	}
	return f.follow()
}

// directory waits for the directory of a sandbox that is about to be made.
func (f *follower) directory(path string) error {
	for {
		changed := f.reader.log.Changed(f.owner)
		state, err := f.state()
		if err != nil || state != agboxv1.ExecState_EXEC_STATE_RUNNING {
			return err
		}
		if _, err := os.Stat(filepath.Dir(path)); err == nil {
			return nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// errReplaced: a file of the operation log has all that it will ever have.
var errReplaced = errors.New("output: the operation log goes on in another file")

func (l *sandboxLog) operations() error {
	older, newer, err := l.openOperations()
	if err != nil {
		return err
	}
	defer func() { older.close(); newer.close() }()
	if err := l.follower(gone, older).send(agboxv1.ExecState_EXEC_STATE_CANCELLED); err != nil {
		return err
	}
	f := l.follower(gone, newer)
	if !l.req.Follow {
		return f.send(agboxv1.ExecState_EXEC_STATE_CANCELLED)
	}
	if err := f.directory(newer.path); err != nil {
		return err
	}
	for {
		newer.moves = true
		f.tails = []*tail{newer}
		f.between = func() error {
			replaced, err := newer.log.Replaced()
			if err != nil {
				return err
			} else if replaced {
				return errReplaced
			}
			return nil
		}
		if err := f.follow(); !errors.Is(err, errReplaced) {
			return err
		}
		f.between = nil
		if err := f.send(agboxv1.ExecState_EXEC_STATE_CANCELLED); err != nil {
			return err
		}
		newer.close()
		newer = newTail(newer.path, l.send)
	}
}

// openOperations opens both halves of the operation log, at the first bytes to send.
func (l *sandboxLog) openOperations() (older, newer *tail, err error) {
	olderPath, newerPath := l.reader.files.OperationLog(l.req.SandboxId)
	for {
		older, newer = newTail(olderPath, l.send), newTail(newerPath, l.send)
		sizes := [2]int64{}
		replaced := false
		if sizes[1], err = newer.log.Size(); err == nil {
			sizes[0], err = older.log.Size()
		}
		if err == nil {
			replaced, err = newer.log.Replaced()
		}
		if err == nil && !replaced {
			if l.req.TailBytes != nil {
				skip := sizes[0] + sizes[1] - int64(min(l.req.GetTailBytes(), uint64(sizes[0]+sizes[1])))
				older.offset = min(skip, sizes[0])
				newer.offset = skip - older.offset
			}
			return older, newer, nil
		}
		older.close()
		newer.close()
		if err != nil {
			return nil, nil, err
		}
	}
}

func (l *sandboxLog) service(view actors.View) error {
	id, name := l.req.SandboxId, l.req.ServiceName
	if name == "" {
		return refusal.New(codes.InvalidArgument, reasonServiceName, "service_name", "which service is meant? name one of the sandbox's")
	}
	var names []string
	spec, _ := l.reader.sandboxes.Spec(id)
	for _, service := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		names = append(names, service.Name)
	}
	if !slices.Contains(names, name) {
		has := "it has none"
		if len(names) > 0 {
			has = "it has " + strings.Join(names, ", ")
		}
		return refusal.New(codes.NotFound, reasonServiceNotFound, "service_name", "sandbox %s has no service %q: %s", id, name, has)
	}
	found, err := l.reader.files.ServiceLog(l.stream.Context(), id, name, l.req.TailBytes, l.req.Follow, func(stream string, data []byte) error {
		for chunk := range slices.Chunk(data, MaxChunk) {
			if err := l.stream.Send(&agboxv1.SandboxLogChunk{Stream: stream, Data: chunk}); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !found:
		return refusal.New(codes.FailedPrecondition, reasonServiceNotMade, "service_name",
			"service %s has no container while sandbox %s is %s, and its output goes with that: read the operation log",
			name, id, strings.TrimPrefix(view.State.Phase.String(), "SANDBOX_STATE_"))
	}
	return nil
}
