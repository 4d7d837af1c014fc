package output

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/refusal"
)

// reasonLogStream is the refusal of a stream that is neither stdout nor stderr, nor both.
const reasonLogStream = "LOG_STREAM_INVALID"

// ReadExec is the call ReadExecLog. It sends the file as it is when asked, or with follow as it grows: then it learns of the exec's end first,
// reads what there is, and ends. agbox-init has written all output of a command before it tells the end. With follow
// the first chunk is empty: a client that loses the daemon knows from it that there was one, and where to go on. An
// offset beyond the end is an empty log, or with follow one that has to grow that far.
func (r *Reader) ReadExec(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk]) error {
	owner, err := r.sandboxes.ExecOwner(req.ExecId)
	if err != nil {
		return err
	}
	path, stderr := r.files.ExecLogs(owner, req.ExecId)
	switch req.Stream {
	case "", "stdout":
	case "stderr":
		path = stderr
	case "both":
		return r.readBoth(req, stream, owner)
	default:
		return refusal.New(codes.InvalidArgument, reasonLogStream, "stream", "%q is not an output of a command: use stdout, stderr or both", req.Stream)
	}
	t := newTail(path, func(offset int64, data []byte) error {
		return stream.Send(&agboxv1.ExecLogChunk{Offset: uint64(offset), Data: data})
	})
	defer t.close()
	f := r.followExec(stream, owner, req.ExecId, t)
	t.offset = int64(min(req.Offset, math.MaxInt64))
	if req.TailBytes != nil {
		if err := t.beforeEnd(req.GetTailBytes()); err != nil {
			return err
		}
	}
	if req.Follow {
		if err := t.send(t.offset, nil); err != nil {
			return err
		}
		return f.follow()
	}
	state, err := f.state()
	if err != nil {
		return err
	}
	return f.send(state)
}

// followExec returns a follower of an exec's output for one client.
func (r *Reader) followExec(stream grpc.ServerStream, owner, execID string, tails ...*tail) *follower {
	return &follower{reader: r, ctx: stream.Context(), owner: owner, what: "the output of exec " + execID,
		tails: tails,
		state: func() (agboxv1.ExecState, error) {
			exec, err := r.log.Exec(owner, execID)
			if err != nil {
				return 0, err
			}
			if exec.End == nil {
				return agboxv1.ExecState_EXEC_STATE_RUNNING, nil
			}
			return exec.End.GetExec().GetExecState(), nil
		}}
}
