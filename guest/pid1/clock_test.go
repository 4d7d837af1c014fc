package pid1

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Whatever was due in a minute is due in a minute after Thaw, whenever it was set.
func TestClockMovesDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sandbox{running: map[*execution]struct{}{}}
		begun := s.clock.now()
		before := &execution{timeoutAt: begun.Add(time.Minute)}
		s.running[before] = struct{}{}
		timer := time.NewTimer(0)
		<-timer.C
		s.arm(timer)
		time.Sleep(10 * time.Second)
		s.clock.thaw() // it runs
		for range 2 {
			s.clock.freeze()
			s.arm(timer)
			time.Sleep(time.Hour)
			s.clock.freeze() // it stands still already
			s.arm(timer)
			during := &execution{timeoutAt: s.clock.now().Add(time.Minute)}
			s.running[during] = struct{}{}
			time.Sleep(time.Hour)
			select {
			case <-timer.C:
				t.Fatal("expired while the clock stood still")
			default:
			}
			if since := s.clock.now().Sub(begun); since != 10*time.Second {
				t.Fatal("went on by", since)
			}
			s.clock.thaw()
		}
		s.arm(timer)
		thawed := time.Now()
		<-timer.C
		if since := time.Since(thawed); since != 50*time.Second {
			t.Fatal("first:", since)
		}
		delete(s.running, before)
		s.arm(timer)
		<-timer.C
		if since := time.Since(thawed); since != time.Minute {
			t.Fatal("second:", since)
		}
	})
}

// All that sets a deadline goes by that clock, which is hours behind the machine's here.
func TestClockSetsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sandbox{running: map[*execution]struct{}{}, execs: map[string]*execution{}}
		say := func(m protocol.Message, fds ...int) { s.receive(received{m: m, fds: fds}) }
		say(&protocol.Freeze{})
		time.Sleep(time.Hour)
		say(&protocol.Thaw{})
		due := s.clock.now().Add(time.Minute)

		cancelled := &execution{id: "cancelled", cancelled: true, killAt: time.Now().Add(time.Hour)}
		s.execs[cancelled.id] = cancelled
		say(&protocol.Cancel{ID: "cancelled", Grace: time.Minute})
		if !cancelled.killAt.Equal(due) {
			t.Error("cancel:", cancelled.killAt.Sub(due))
		}

		s.stopping, s.killAt = true, time.Now().Add(time.Hour)
		say(&protocol.Stop{Grace: time.Minute})
		if !s.killAt.Equal(due) {
			t.Error("stop:", s.killAt.Sub(due))
		}

		say(&protocol.Exec{ID: "refused", Timeout: time.Minute, Roles: []string{protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord}}, null(), null(), null()) // it is stopping
		if at := s.execs["refused"].timeoutAt; !at.Equal(due) {
			t.Error("timeout:", at.Sub(due))
		}
	})
}
