package protocol_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

// What is queued is sent in its order; what is not sent any more, and what is too much, is given up with its descriptors.
func TestQueue(t *testing.T) {
	sent, ended := make(chan Outgoing, 9), make(chan struct{})
	fail := false
	q := NewQueue(2, func(o Outgoing) error {
		if fail {
			return errors.New("broken")
		}
		sent <- o
		return nil
	}, func() { close(ended) })
	done := make(chan struct{})
	if err := q.Send(&Ack{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	flushed := q.Flush()
	go func() {
		defer close(done)
		q.Run()
	}()
	if !<-flushed || (<-sent).Message.(*Ack).ID != "a" {
		t.Fatal("not sent")
	}
	fail = true
	if err := q.Send(&Ack{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	<-ended
	<-done
	if err := q.Send(&Exec{Argv: []string{string(make([]byte, MaxFrame))}}); !errors.Is(err, ErrTooBig) {
		t.Error(err)
	}
	if <-q.Flush() {
		t.Error("sent after the end")
	}
}

func TestQueueTooLong(t *testing.T) {
	ended := false
	q := NewQueue(1, func(Outgoing) error { return nil }, func() { ended = true })
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	fd, err := syscall.Dup(int(write.Fd()))
	if err := errors.Join(err, write.Close()); err != nil {
		t.Fatal(err)
	}
	q.Add(Outgoing{})
	if err := q.Send(&Ack{}, fd); err != nil || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
	if n, err := read.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the descriptor was not closed")
	}
	q.Run() // ends at once
}
