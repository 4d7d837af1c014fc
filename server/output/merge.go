package output

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// merge is one client's way through both outputs of an exec, in the order of the index. It belongs to the goroutine that
// serves the call.
//
// The first byte of an index is on the disk before that of the output. So whoever has seen output, and then no index, need
// not wait for one: then stdout is sent before stderr, or what comes first by a follower. Else a follower sends what the
// index tells of, which is behind the output by some milliseconds, and after the exec's end what the files hold beyond it.
type merge struct {
	*follower
	stream  grpc.ServerStreamingServer[agboxv1.ExecLogChunk]
	outputs [2]*tail
	ends    [2]int64 // of what is to be sent
	index   *tail
	decoder protocol.IndexDecoder
	decided bool      // whether there is an index
	at      time.Time // of the chunks to be sent
}

// errIndexed: there is output, and an index of it.
var errIndexed = errors.New("output: the output has an index")

// readBoth is ReadExecLog of both streams.
func (r *Reader) readBoth(req *agboxv1.ReadExecLogRequest, stream grpc.ServerStreamingServer[agboxv1.ExecLogChunk], owner string) error {
	stdout, stderr := r.files.ExecLogs(owner, req.ExecId)
	m := &merge{stream: stream, ends: [2]int64{math.MaxInt64, math.MaxInt64}}
	m.outputs = [2]*tail{m.output("stdout", stdout), m.output("stderr", stderr)}
	m.index = newTail(r.files.ExecIndex(owner, req.ExecId), m.sendIndexed)
	m.follower = r.followExec(stream, owner, req.ExecId, m.outputs[:]...)
	defer m.close()
	if req.Follow {
		if err := stream.Send(&agboxv1.ExecLogChunk{Stream: "stdout"}); err != nil {
			return err
		}
	}
	state, err := m.state()
	if err != nil {
		return err
	}
	if req.Follow && state == agboxv1.ExecState_EXEC_STATE_RUNNING {
		return m.live()
	}
	return m.present(state)
}

func (m *merge) output(name, path string) *tail {
	return newTail(path, func(offset int64, data []byte) error {
		if !m.decided {
			if err := m.indexed(); err != nil {
				return err
			}
		}
		chunk := &agboxv1.ExecLogChunk{Stream: name, Offset: uint64(offset), Data: data}
		if !m.at.IsZero() {
			chunk.WrittenAt = timestamppb.New(m.at)
		}
		return m.stream.Send(chunk)
	})
}

func (m *merge) removed() error {
	return fmt.Errorf("%s was removed from the disk", m.what)
}

func (m *merge) close() {
	m.index.close()
	for _, t := range m.outputs {
		t.close()
	}
}

// indexed fails with errIndexed when there is an index. It is for who has seen output, or sends no more than was there.
func (m *merge) indexed() error {
	m.decided = true
	size, err := m.index.log.Size()
	switch {
	case err != nil:
		return err
	case size > 0:
		return errIndexed
	}
	return nil
}

// present sends what there is now.
func (m *merge) present(state agboxv1.ExecState) error {
	if err := m.measure(state); err != nil {
		return err
	}
	err := m.indexed()
	if errors.Is(err, errIndexed) {
		m.tails = []*tail{m.index}
		err = m.send(state)
	}
	if err != nil {
		return err
	}
	return m.beyond()
}

// live sends what there is, and what comes until the exec has ended.
func (m *merge) live() error {
	if err := m.follow(); !errors.Is(err, errIndexed) {
		return err
	}
	for _, t := range m.outputs {
		if t.watch != nil {
			t.watch.Close()
			t.watch = nil
		}
	}
	m.tails = []*tail{m.index}
	if err := m.follow(); err != nil {
		return err
	}
	if err := m.measure(agboxv1.ExecState_EXEC_STATE_CANCELLED); err != nil {
		return err
	}
	return m.beyond()
}

// measure has the sending end where the files end now. After a command that ran to its end they must be there.
func (m *merge) measure(state agboxv1.ExecState) error {
	for i, t := range m.outputs {
		var err error
		if m.ends[i], err = t.log.Size(); err != nil {
			return err
		}
		if !t.log.Opened() && state == agboxv1.ExecState_EXEC_STATE_FINISHED {
			return m.removed()
		}
	}
	return nil
}

// sendIndexed sends what a part of the index tells of.
func (m *merge) sendIndexed(_ int64, data []byte) error {
	m.decoder.Feed(data)
	for run, more := m.decoder.Next(); more; run, more = m.decoder.Next() {
		i := 0
		if run.Stderr {
			i = 1
		}
		t := m.outputs[i]
		if _, err := t.log.Size(); err != nil {
			return err
		}
		if !t.log.Opened() {
			return m.removed()
		}
		if err := m.upTo(t, min(m.ends[i]-t.offset, run.Length)+t.offset, run.At); err != nil {
			return err
		}
	}
	return nil
}

// beyond sends what the index has not told of: the time of that is not known.
func (m *merge) beyond() error {
	for i, t := range m.outputs {
		if err := m.upTo(t, m.ends[i], time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// upTo sends what a file holds before end.
func (m *merge) upTo(t *tail, end int64, at time.Time) error {
	m.at = at
	for t.size = end; t.offset < t.size; {
		if err := m.chunk(t); err != nil {
			return err
		}
	}
	return nil
}
