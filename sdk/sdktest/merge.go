package sdktest

import (
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/execlog"
)

// WrittenAt is the time of all output in ReadExecLog of both streams.
var WrittenAt = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// labelled gives each chunk its stream and its time.
type labelled struct {
	grpc.ServerStreamingServer[agboxv1.ExecLogChunk]
	name string
}

func (l labelled) Send(chunk *agboxv1.ExecLogChunk) error {
	chunk.Stream, chunk.WrittenAt = l.name, timestamppb.New(WrittenAt)
	return l.ServerStreamingServer.Send(chunk)
}

// readBoth knows of no order but that in which output is met.
func (d *Daemon) readBoth(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk], p *process) error {
	logs := [2]*execlog.Log{execlog.New(p.status.StdoutLogPath), execlog.New(p.status.StderrLogPath)}
	var grown [2]<-chan struct{}
	for i, path := range []string{p.status.StdoutLogPath, p.status.StderrLogPath} {
		watch, err := notices.Watch(path)
		if err != nil {
			return err
		}
		defer watch.Close()
		defer logs[i].Close()
		grown[i] = watch.Grown()
	}
	if req.GetFollow() {
		if err := stream.Send(&agboxv1.ExecLogChunk{Stream: "stdout"}); err != nil {
			return err
		}
	}
	var offsets [2]int64
	for {
		ended := !req.GetFollow()
		select {
		case <-p.ended:
			ended = true
		default:
		}
		for i, name := range []string{"stdout", "stderr"} {
			var err error
			if offsets[i], err = sendLog(logs[i], offsets[i], labelled{stream, name}); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		select {
		case <-grown[0]:
		case <-grown[1]:
		case <-p.ended:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
