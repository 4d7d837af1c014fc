package server

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/dockerrt/execlog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// reasonLogStream is the refusal of a stream that is neither stdout nor stderr.
const reasonLogStream = "LOG_STREAM_INVALID"

// maxLogChunk is how many bytes of a log one message holds at most; a client that does not read holds two of them.
const maxLogChunk = 64 << 10

// logNotices serves all followers of the process, of which the system's limits on inotify are.
var logNotices execlog.Notices

// ReadExecLog sends the file as it is when asked, or with follow as it grows: then it learns of the exec's end first,
// reads what there is, and ends. agbox-init has written all output of a command before it tells the end. With follow
// the first chunk is empty: a client that loses the daemon knows from it that there was one, and where to go on. An
// offset beyond the end is an empty log, or with follow one that has to grow that far.
func (s *Server) ReadExecLog(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk]) (err error) {
	owner, err := s.system.ExecOwner(req.ExecId)
	if err != nil {
		return s.fail(err, "exec_id", req.ExecId)
	}
	path, stderr := s.runtime.ExecLogs(owner, req.ExecId)
	switch req.Stream {
	case "", "stdout":
	case "stderr":
		path = stderr
	default:
		return newStatus(codes.InvalidArgument, reasonLogStream,
			fmt.Sprintf("stream: %q is not an output of a command: use stdout or stderr", req.Stream),
			map[string]string{"field": "stream", "exec_id": req.ExecId})
	}
	r := &logReader{server: s, stream: stream, log: execlog.New(path), owner: owner, execID: req.ExecId}
	defer r.log.Close()
	if err := r.begin(req); err != nil {
		return err
	}
	if req.Follow {
		return r.follow(path)
	}
	state, err := r.state()
	if err != nil {
		return err
	}
	return r.send(state)
}

// logReader is one client's way through one file.
type logReader struct {
	server        *Server
	stream        grpc.ServerStreamingServer[agboxv1.ExecLogChunk]
	log           *execlog.Log
	owner, execID string
	offset        int64
}

func (r *logReader) fail(err error) error {
	return r.server.fail(err, "sandbox_id", r.owner, "exec_id", r.execID)
}

// begin finds the first byte to send, and tells a follower.
func (r *logReader) begin(req *agboxv1.ReadExecLogRequest) error {
	r.offset = int64(min(req.Offset, math.MaxInt64))
	if req.TailBytes != nil {
		size, err := r.log.Size()
		if err != nil {
			return r.fail(err)
		}
		r.offset = size - int64(min(req.GetTailBytes(), uint64(size)))
	}
	if !req.Follow {
		return nil
	}
	return r.stream.Send(&agboxv1.ExecLogChunk{Offset: uint64(r.offset)})
}

func (r *logReader) state() (agboxv1.ExecState, error) {
	exec, err := r.server.db.Exec(r.owner, r.execID)
	if err != nil {
		return 0, r.fail(err)
	}
	if exec.End == nil {
		return agboxv1.ExecState_EXEC_STATE_RUNNING, nil
	}
	return exec.End.GetExec().GetExecState(), nil
}

// follow sends until the exec has ended and all is sent.
func (r *logReader) follow(path string) error {
	watch, err := logNotices.Watch(path)
	var grown <-chan struct{}
	switch {
	case err == nil:
		defer watch.Close()
		grown = watch.Grown()
	case !errors.Is(err, fs.ErrNotExist): // without its directory there is no file, and none will come
		return r.fail(err)
	}
	for {
		changed := r.server.db.Changed(r.owner)
		state, err := r.state()
		if err != nil {
			return err
		}
		for same := true; same; {
			if err := r.send(state); err != nil {
				return err
			}
			if state != agboxv1.ExecState_EXEC_STATE_RUNNING {
				return nil
			}
			if watch != nil && r.log.Opened() {
				if err := watch.Narrow(); err != nil {
					return r.fail(err)
				}
			}
			select {
			case <-grown:
			case <-changed:
				same = false
			case <-r.stream.Context().Done():
				return r.fail(r.stream.Context().Err())
			case <-r.server.closing:
				return r.fail(actors.ErrShuttingDown)
			}
		}
	}
}

// send sends up to the present end of the file, which a command that ran to its end must have.
func (r *logReader) send(state agboxv1.ExecState) error {
	size, err := r.log.Size()
	if err != nil {
		return r.fail(err)
	}
	if !r.log.Opened() && state == agboxv1.ExecState_EXEC_STATE_FINISHED {
		return r.fail(fmt.Errorf("the output of exec %s was removed from the disk", r.execID))
	}
	for r.offset < size {
		select {
		case <-r.server.closing:
			return r.fail(actors.ErrShuttingDown)
		default:
		}
		data := make([]byte, min(size-r.offset, maxLogChunk))
		n, err := r.log.Read(data, r.offset)
		if err != nil {
			return r.fail(err)
		}
		if n == 0 {
			return nil // the command has cut it short meanwhile
		}
		if err := r.stream.Send(&agboxv1.ExecLogChunk{Offset: uint64(r.offset), Data: data[:n]}); err != nil {
			return err
		}
		r.offset += int64(n)
	}
	return nil
}
