// Package output follows what commands and sandboxes write, from the files where that lies, and passes on what clients send to a
// command.
package output

import (
	"context"
	"sync"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/execlog"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// MaxChunk is how many bytes of a log, or of files, one message holds at most. With what is said of it the message fits
// into one frame of HTTP/2 (16 KiB), and into a buffer of gRPC's pool: the next larger ones have 32 KiB and 1 MiB. A client
// that does not read holds about seven: the 64 KiB that gRPC takes of a stream in advance, and what was about to follow.
const MaxChunk = 16<<10 - 128

// maxTold is how many bytes of a log a chunk without data stands for at most: then it is the other stream's turn.
const maxTold = 1 << 20

// Sandboxes finds sandboxes, and the sandbox of an exec; actors.System has it.
type Sandboxes interface {
	Sandbox(id string) (actors.View, error)
	Spec(id string) (*agboxv1.CreateSpec, bool)
	ExecOwner(execID string) (string, error)
}

// Log tells what has become of an exec, and when there is more to tell of a sandbox; persist.DB has it.
type Log interface {
	Exec(sandboxID, execID string) (persist.Exec, error)
	Changed(sandboxID string) <-chan struct{}
}

// Files is where the runtime keeps what is written.
type Files interface {
	ExecLogs(sandboxID, execID string) (stdout, stderr string)
	// ExecIndex returns the host path of the index of the order of both, which protocol.IndexDecoder reads, or at which there is
	// nothing. An index that is not empty has told of all output when the exec has ended, but where its writer died; one that is
	// empty while there is output stays so.
	ExecIndex(sandboxID, execID string) string
	// OperationLog returns the host paths of what the runtime tells of the sandbox. At the second path comes a new file
	// when what is there becomes the first, of which there need not be any.
	OperationLog(sandboxID string) (older, newer string)
	// ServiceLog calls send with what the service has written up to now, or with follow until it ends, from tail bytes
	// before the present end. found is false for one that has no container.
	ServiceLog(ctx context.Context, sandboxID, service string, tail *uint64, follow bool, send func(stream string, data []byte) error) (found bool, err error)
	// ExecPID and AwaitExec are as in runtime.Execs.
	ExecPID(execID string) int
	AwaitExec(ctx context.Context, execID string) (pid int, err error)
	runtime.Input
}

// Reader serves the calls that carry output. A stream's context ends at shutdown, too.
type Reader struct {
	sandboxes Sandboxes
	log       Log
	files     Files
	notices   *execlog.Notices
	// receivers read what clients send, and end with their streams.
	receivers sync.WaitGroup
}

// NewReader has notices serve all who follow.
func NewReader(sandboxes Sandboxes, log Log, files Files, notices *execlog.Notices) *Reader {
	return &Reader{sandboxes: sandboxes, log: log, files: files, notices: notices}
}

// Wait returns once nothing is left of calls that have ended.
func (r *Reader) Wait() { r.receivers.Wait() }

// Exec finds an exec whose sandbox is not known.
func (r *Reader) Exec(id string) (persist.Exec, error) {
	owner, err := r.sandboxes.ExecOwner(id)
	if err != nil {
		return persist.Exec{}, err
	}
	return r.log.Exec(owner, id)
}

// Status is an exec as clients see it.
func (r *Reader) Status(exec persist.Exec) *agboxv1.ExecStatus {
	request := exec.Request
	status := &agboxv1.ExecStatus{
		ExecId:            request.ExecId,
		SandboxId:         request.SandboxId,
		State:             agboxv1.ExecState_EXEC_STATE_RUNNING,
		Command:           request.Command,
		Cwd:               request.Cwd,
		EnvOverrides:      request.EnvOverrides,
		LastEventSequence: exec.Newest,
		Stdin:             request.Stdin,
		Tty:               request.Tty != nil,
		Tag:               request.Tag,
		User:              request.User,
	}
	status.StdoutLogPath, status.StderrLogPath = r.files.ExecLogs(request.SandboxId, request.ExecId)
	if end := exec.End.GetExec(); end != nil {
		status.State = end.ExecState
		status.ExitCode, status.Signal = end.ExitCode, end.Signal
		status.Error, status.ErrorCode = end.ErrorMessage, end.ErrorCode
		status.StartedAt, status.EndedAt, status.Resources = end.StartedAt, end.EndedAt, end.Resources
		status.Pid = end.Pid
	} else {
		status.Pid = uint32(r.files.ExecPID(request.ExecId))
	}
	return status
}
