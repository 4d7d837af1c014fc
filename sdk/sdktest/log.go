package sdktest

import (
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/execlog"
)

// notices serves all daemons of a test's process.
var notices execlog.Notices

// ReadExecLog reads the files that CreateExec names. Chunks hold 1,000 bytes at most.
func (d *Daemon) ReadExecLog(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk]) error {
	d.mu.Lock()
	p, err := d.exec("ReadExecLog", req.GetExecId())
	d.mu.Unlock()
	if err != nil {
		return err
	}
	path := p.status.StdoutLogPath
	switch req.GetStream() {
	case "", "stdout":
	case "stderr":
		path = p.status.StderrLogPath
	case "both":
		return d.readBoth(req, stream, p)
	default:
		return Refusal(codes.InvalidArgument, "LOG_STREAM_INVALID", "stream: use stdout, stderr or both", "field", "stream")
	}
	log := execlog.New(path)
	defer log.Close()
	watch, err := notices.Watch(path)
	if err != nil {
		return err
	}
	defer watch.Close()
	offset := int64(req.GetOffset())
	if req.TailBytes != nil {
		size, err := log.Size()
		if err != nil {
			return err
		}
		offset = max(0, size-int64(req.GetTailBytes()))
	}
	if req.GetFollow() {
		if err := stream.Send(&agboxv1.ExecLogChunk{Offset: uint64(offset)}); err != nil {
			return err
		}
	}
	for {
		ended := !req.GetFollow()
		select {
		case <-p.ended:
			ended = true
		default:
		}
		if offset, err = sendLog(log, offset, stream); err != nil || ended {
			return err
		}
		select {
		case <-watch.Grown():
		case <-p.ended:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func sendLog(log *execlog.Log, offset int64, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk]) (int64, error) {
	size, err := log.Size()
	for err == nil && offset < size {
		data := make([]byte, min(size-offset, 1000))
		var n int
		if n, err = log.Read(data, offset); err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = stream.Send(&agboxv1.ExecLogChunk{Offset: uint64(offset), Data: data[:n]})
		}
		offset += int64(n)
	}
	return offset, err
}
