package protocol

import (
	"time"

	"github.com/agbox-dev/agbox/text"
)

// Result is how a command ended. It is sent as a message and kept on disk as a record.
type Result struct {
	ID string
	// ExitCode is 128+N when signal N ended the command, 126 or 127 when it could not be run.
	ExitCode int
	Signal   int
	// Started and Ended are by the clock of the sandbox's host, to the nanosecond.
	Started, Ended time.Time
	// UserTime, SystemTime and MaxRSS (bytes) are of the leader and the children that it waited for.
	UserTime, SystemTime time.Duration
	MaxRSS               int64
	// Cancelled: a Cancel, a timeout or a Stop was applied before the command ended.
	Cancelled bool
	// TimedOut: it was the timeout. Cancelled is set, too.
	TimedOut bool
	// OutputLost counts bytes of output that could not be written to the log files, for instance
	// on a full disk.
	OutputLost uint64
	// OutputDropped counts bytes of output beyond Exec.MaxOutput.
	OutputDropped uint64
	// StdoutBytes and StderrBytes were written to the files by this exec until its result was made;
	// what a process that outlives the command writes later is not in them.
	StdoutBytes, StderrBytes uint64
	// OOM: the leader was ended by a KILL that init did not send, and the kernel has killed a process
	// of the sandbox for want of memory while the command ran. False where the sandbox cannot read
	// its counter of that (under /sys/fs/cgroup: memory.events, in v1 memory/memory.oom_control).
	OOM bool
	// ErrorCode is one of the Code constants when the command could not be run, else "".
	ErrorCode    string
	ErrorMessage string
}

// What is said of a failure repeats names and arguments of the sandbox. Both ends bound it, in bytes: the daemon trusts no
// sandbox, and what PID 1 keeps until it is acknowledged, and a record, stay small.
const (
	maxCode    = 128
	maxMessage = 2 << 10
)

// OutputMissing counts the bytes of output that are not in the log files, whatever the reason.
func (r *Result) OutputMissing() uint64 { return r.OutputLost + r.OutputDropped }

func (r *Result) put(e *encoder) {
	e.str(1, r.ID)
	e.int(2, int64(r.ExitCode))
	e.int(3, int64(r.Signal))
	e.time(4, r.Started)
	e.time(5, r.Ended)
	e.int(6, int64(r.UserTime))
	e.int(7, int64(r.SystemTime))
	e.int(8, r.MaxRSS)
	e.bool(9, r.Cancelled)
	e.bool(10, r.TimedOut)
	e.uint(11, r.OutputLost)
	e.str(12, text.Bound(r.ErrorCode, maxCode))
	e.str(13, text.Bound(r.ErrorMessage, maxMessage))
	e.uint(14, r.OutputDropped)
	e.uint(15, r.StdoutBytes)
	e.uint(16, r.StderrBytes)
	e.bool(17, r.OOM)
}

func (r *Result) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&r.ID)
	case 2:
		return setInt(f, &r.ExitCode)
	case 3:
		return setInt(f, &r.Signal)
	case 4:
		return f.time(&r.Started)
	case 5:
		return f.time(&r.Ended)
	case 6:
		return f.int64((*int64)(&r.UserTime))
	case 7:
		return f.int64((*int64)(&r.SystemTime))
	case 8:
		return f.int64(&r.MaxRSS)
	case 9:
		return f.bool(&r.Cancelled)
	case 10:
		return f.bool(&r.TimedOut)
	case 11:
		return f.uint(&r.OutputLost)
	case 12:
		return f.text(&r.ErrorCode, maxCode)
	case 13:
		return f.text(&r.ErrorMessage, maxMessage)
	case 14:
		return f.uint(&r.OutputDropped)
	case 15:
		return f.uint(&r.StdoutBytes)
	case 16:
		return f.uint(&r.StderrBytes)
	case 17:
		return f.bool(&r.OOM)
	}
	return true
}
