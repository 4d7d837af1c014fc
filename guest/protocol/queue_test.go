package protocol_test

import (
	"errors"
	"os"
	"slices"
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

// Frames that wait together go together, in their order, up to one with descriptors or a message to look at.
func TestQueueJoinsFrames(t *testing.T) {
	var sent []string
	q := NewQueue(9, func(o Outgoing) error {
		sent = append(sent, string(o.Frame[max(len(o.Frame)-4, 0):]))
		closeAll(o.FDs)
		return nil
	}, func() {})
	fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := append(make([]byte, 0, 8), "a"...) // has room, which is its owner's
	for _, o := range []Outgoing{{Frame: a}, {Frame: []byte("b")}, {Frame: []byte("c")}, {Frame: []byte("d"), FDs: []int{fd}}, {Frame: []byte("e")},
		{Frame: []byte("f"), Message: &Ack{}}, {Frame: []byte("g")}, {Frame: []byte("h")}} {
		q.Add(o)
	}
	flushed := q.Flush()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Run()
	}()
	if !<-flushed {
		t.Fatal("not sent")
	}
	q.Close()
	<-done
	if want := []string{"abc", "d", "e", "f", "gh"}; !slices.Equal(sent, want) || string(a[:2]) != "a\x00" {
		t.Fatalf("%q, want %q; the first is %q now", sent, want, a[:2])
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
