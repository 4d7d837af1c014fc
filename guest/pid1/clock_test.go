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
		say := func(m protocol.Message) { s.receive(received{m: m}) }
		begun := s.clock.now()
		timer := time.NewTimer(0)
		<-timer.C
		run := func(e *execution) {
			s.running[e] = struct{}{}
			s.due(e.deadline())
		}
		before := &execution{timeoutAt: begun.Add(time.Minute)}
		run(before)
		s.arm(timer)
		time.Sleep(10 * time.Second)
		say(&protocol.Thaw{}) // it runs
		for range 2 {
			say(&protocol.Freeze{})
			s.arm(timer)
			time.Sleep(time.Hour)
			say(&protocol.Freeze{}) // it stands still already
			s.arm(timer)
			run(&execution{timeoutAt: s.clock.now().Add(time.Minute)})
			s.arm(timer)
			time.Sleep(time.Hour)
			select {
			case <-timer.C:
				t.Fatal("expired while the clock stood still")
			default:
			}
			if since := s.clock.now().Sub(begun); since != 10*time.Second {
				t.Fatal("went on by", since)
			}
			say(&protocol.Thaw{})
		}
		s.arm(timer)
		thawed := time.Now()
		<-timer.C
		if since := time.Since(thawed); since != 50*time.Second {
			t.Fatal("first:", since)
		}
		delete(s.running, before)
		s.wentOff()
		s.arm(timer)
		<-timer.C
		if since := time.Since(thawed); since != time.Minute {
			t.Fatal("second:", since)
		}
	})
}

// The timer is set anew only for what is due earlier than it goes off.
func TestClockArmsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sandbox{running: map[*execution]struct{}{}}
		timer := time.NewTimer(0)
		<-timer.C
		begun := time.Now()
		for _, minutes := range []time.Duration{3, 5, 2, 4} {
			e := &execution{timeoutAt: s.clock.now().Add(minutes * time.Minute)}
			s.running[e] = struct{}{}
			s.due(e.deadline())
			s.arm(timer)
		}
		for minutes := time.Duration(2); minutes <= 5; minutes++ {
			<-timer.C
			if since := time.Since(begun); since != minutes*time.Minute {
				t.Fatal(minutes, since)
			}
			for e := range s.running {
				if !e.timeoutAt.After(s.clock.now()) {
					delete(s.running, e)
				}
			}
			s.wentOff()
			s.arm(timer)
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
