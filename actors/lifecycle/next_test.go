package lifecycle_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func pathOf(t *testing.T, name string) *sandbox {
	t.Helper()
	for _, state := range states {
		if state.name == name {
			return newSandbox().must(t, state.path...)
		}
	}
	t.Fatalf("there is no state %q", name)
	return nil
}

// TestNext: what a sandbox does by itself in each state that matters, and how long after it came into that state.
func TestNext(t *testing.T) {
	minutes := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Minute) }
	idle := lifecycle.Policy{IdleTTL: time.Minute, CleanupTTL: time.Hour}
	spec := func(s *agboxv1.CreateSpec) lifecycle.Policy { return lifecycle.Policy{Spec: s} }
	lease := func(onEnd string) lifecycle.Policy {
		return spec(&agboxv1.CreateSpec{Lease: &agboxv1.LeaseSpec{Grace: minutes(1), OnEnd: onEnd}})
	}
	free, held := lifecycle.Users{Since: start}, lifecycle.Users{Since: start, Count: 1}
	idleStop, leaseEnd := lifecycle.Stop{Reason: "idle_ttl"}, lifecycle.Delete{Reason: "lease_ended"}
	for _, c := range []struct {
		what, state string
		policy      lifecycle.Policy
		lease       lifecycle.Users
		next        lifecycle.Command
		after       time.Duration // since the state's last event; -1: never
	}{
		{"nothing is asked for", "ready", lifecycle.Policy{}, free, nil, -1},
		{"the daemon's idle time", "ready", idle, free, idleStop, time.Minute},
		{"its own idle time", "ready", spec(&agboxv1.CreateSpec{IdleTtl: minutes(2)}), free, idleStop, 2 * time.Minute},
		{"never idle", "ready", lifecycle.Policy{IdleTTL: time.Minute, Spec: &agboxv1.CreateSpec{IdleTtl: minutes(0)}}, free, nil, -1},
		{"idle is a pause", "ready", spec(&agboxv1.CreateSpec{IdleTtl: minutes(2), OnIdle: "pause"}), free, lifecycle.Pause{Reason: "idle_ttl"}, 2 * time.Minute},
		{"idle is the end", "ready", spec(&agboxv1.CreateSpec{IdleTtl: minutes(2), OnIdle: "delete"}), free, lifecycle.Delete{Reason: "idle_ttl"}, 2 * time.Minute},
		{"a running exec is work", "running", idle, free, nil, -1},
		{"the own command is work", "ready", spec(&agboxv1.CreateSpec{IdleTtl: minutes(2), Command: []string{"x"}}), free, nil, -1},
		{"a stop is under way", "stopping", idle, free, nil, -1},
		{"a paused one is not idle", "paused", idle, free, nil, -1},
		{"cleanup", "stopped", idle, free, lifecycle.Delete{Reason: "cleanup_ttl"}, time.Hour},
		{"a drain without end", "draining", idle, free, nil, -1},
		{"expiry deletes", "ready", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3)}), free, lifecycle.Delete{Reason: "max_duration"}, 3*time.Minute - time.Second},
		{"expiry stops", "ready", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3), OnExpiry: "stop"}), free, lifecycle.Stop{Reason: "max_duration"}, 3*time.Minute - time.Second},
		{"expiry pauses", "ready", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3), OnExpiry: "pause"}), free, lifecycle.Pause{Reason: "max_duration"}, 3*time.Minute - time.Second},
		{"expiry of a paused one", "paused", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3), OnExpiry: "pause"}), free, nil, -1},
		{"expiry of a stopped one", "stopped", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3), OnExpiry: "stop"}), free, nil, -1},
		{"expiry of a failed one", "failed", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3)}), free, lifecycle.Delete{Reason: "max_duration"}, 3*time.Minute - time.Second},
		{"what comes first", "ready", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3), IdleTtl: minutes(1)}), free, idleStop, time.Minute},
		{"nobody holds it", "ready", lease(""), free, leaseEnd, time.Minute - 2*time.Second},
		{"somebody holds it", "ready", lease(""), held, nil, -1},
		{"a lease that stops leaves time to hold it", "ready", lease("stop"), free, lifecycle.Stop{Reason: "lease_ended"}, time.Minute},
		{"a lease of a stopped one", "stopped", lease("stop"), free, nil, -1},
		{"a restart waits", "restarting", lifecycle.Policy{}, free, nil, time.Second},
		{"a restart that waits expires", "restarting", spec(&agboxv1.CreateSpec{MaxDuration: minutes(0)}), free, lifecycle.Delete{Reason: "max_duration"}, -2 * time.Second},
		{"it is deleted anyway", "deleting", lease(""), free, nil, -1},
		{"it is gone", "deleted", spec(&agboxv1.CreateSpec{MaxDuration: minutes(3)}), free, nil, -1},
	} {
		s := pathOf(t, c.state)
		next, at := lifecycle.Next(s.state, c.policy, lifecycle.Presence{Lease: c.lease}, s.now)
		after := time.Duration(-1)
		if !at.IsZero() {
			after = at.Sub(s.now)
		}
		if !reflect.DeepEqual(next, c.next) || after != c.after {
			t.Errorf("%s: %s does %#v after %v, want %#v after %v", c.what, c.state, next, after, c.next, c.after)
		}
	}
}

// TestExpiryPauses: a sandbox that is paused since its time was over goes on only once it has more, and where the pause failed it is
// tried again a while later.
func TestExpiryPauses(t *testing.T) {
	s := newSandbox().must(t, ready()...)
	s.policy = lifecycle.Policy{Spec: &agboxv1.CreateSpec{MaxDuration: durationpb.New(time.Minute), OnExpiry: "pause"}}
	next, at := lifecycle.Next(s.state, s.policy, lifecycle.Presence{}, s.now)
	s.now = at
	s.must(t, next, lifecycle.OperationFailed{Operation: lifecycle.Pausing, Message: "busy"})
	next, again := lifecycle.Next(s.state, s.policy, lifecycle.Presence{}, s.now)
	if next != (lifecycle.Pause{Reason: lifecycle.ReasonMaxDuration}) || again.Sub(at) < 10*time.Second || again.Sub(at) > time.Minute {
		t.Errorf("after a pause that failed it does %v %v later", next, again.Sub(at))
	}
	s.now = again
	s.must(t, next, lifecycle.OperationDone{Operation: lifecycle.Pausing})
	if _, err := s.do(lifecycle.Unpause{}); !errors.Is(err, lifecycle.ErrInvalidState) || !strings.Contains(err.Error(), "extend its max_duration first") {
		t.Errorf("without time it goes on: %v", err)
	}
	later := s.now.Add(time.Hour)
	s.must(t, lifecycle.Extend{ExpiresAt: &later}, lifecycle.Unpause{}, lifecycle.OperationDone{Operation: lifecycle.Unpausing})
	if next, at := lifecycle.Next(s.state, s.policy, lifecycle.Presence{}, s.now); next == nil || !at.Equal(later) {
		t.Errorf("after it was extended and unpaused it does %v at %v", next, at)
	}
}

// TestTraffic: a sandbox that somebody is connected to is not idle, and its idle time counts from the last one's end.
func TestTraffic(t *testing.T) {
	t.Parallel()
	s, idle := pathOf(t, "ready"), lifecycle.Policy{IdleTTL: time.Minute}
	if next, at := lifecycle.Next(s.state, idle, lifecycle.Presence{Traffic: lifecycle.Users{Count: 1, Since: s.now}}, s.now); next != nil || !at.IsZero() {
		t.Errorf("while somebody is connected it does %v at %v", next, at)
	}
	left := lifecycle.Users{Since: s.now.Add(time.Hour)}
	next, at := lifecycle.Next(s.state, idle, lifecycle.Presence{Traffic: left}, s.now)
	if next != (lifecycle.Stop{Reason: lifecycle.ReasonIdleTTL}) || !at.Equal(left.Since.Add(time.Minute)) {
		t.Errorf("after the last one has left it does %v at %v", next, at)
	}
}

// TestWakeByTraffic: a sandbox whose spec says so goes on for traffic from wherever it stands still, and no other does.
func TestWakeByTraffic(t *testing.T) {
	t.Parallel()
	wakes := lifecycle.Policy{Spec: &agboxv1.CreateSpec{Wake: "traffic"}}
	waits := map[string]lifecycle.Command{
		"dormant": lifecycle.Use{}, "making": nil, "pending": nil, "creating": nil, "halting": nil, "paused": lifecycle.Unpause{}, "pausing": nil, "unpausing": nil,
		"stopping": nil, "killing": nil, "stopped": lifecycle.Resume{}, "resuming": nil, "restarting": nil,
	}
	for _, state := range states {
		s := newSandbox().must(t, state.path...)
		wake, want := waits[state.name]
		if wakes.Waits(s.state, lifecycle.Use{Traffic: true}) != want {
			t.Errorf("%s: traffic waits: %v", state.name, !want)
		}
		if want && s.state.Wake() != wake {
			t.Errorf("%s goes on by %v", state.name, s.state.Wake())
		}
		if asleep := state.name == "dormant" || state.name == "making"; (lifecycle.Policy{}).Waits(s.state, lifecycle.Use{Traffic: true}) != asleep {
			t.Errorf("%s: traffic waits for a sandbox that does not go on for it", state.name)
		}
	}
}

// TestDrainDeadline: a drain that has an end goes on as a stop.
func TestDrainDeadline(t *testing.T) {
	s := newSandbox().must(t, ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Drain{Until: start.Add(time.Hour)})...)
	next, at := lifecycle.Next(s.state, lifecycle.Policy{}, lifecycle.Presence{}, s.now)
	if next != (lifecycle.Stop{Reason: lifecycle.ReasonDrainDeadline}) || !at.Equal(start.Add(time.Hour)) {
		t.Errorf("it does %v at %v", next, at)
	}
	s.must(t, lifecycle.Stop{})
	if next, at := lifecycle.Next(s.state, lifecycle.Policy{}, lifecycle.Presence{}, s.now); next != nil || !at.IsZero() {
		t.Errorf("while it is being stopped it does %v at %v", next, at)
	}
}

// TestWaits: uses wait where the sandbox goes on for them, and only there.
func TestWaits(t *testing.T) {
	waits := map[string]lifecycle.Command{"dormant": lifecycle.Use{}, "making": nil}
	for _, state := range states {
		s := newSandbox().must(t, state.path...)
		wake, want := waits[state.name]
		if (lifecycle.Policy{}).Waits(s.state, lifecycle.Use{}) != want || (lifecycle.Policy{}).Waits(s.state, lifecycle.StartExec{}) != want || (lifecycle.Policy{}).Waits(s.state, lifecycle.Stop{}) {
			t.Errorf("%s: an exec waits: %v", state.name, (lifecycle.Policy{}).Waits(s.state, lifecycle.StartExec{}))
		}
		if want && s.state.Wake() != wake {
			t.Errorf("%s goes on by %v", state.name, s.state.Wake())
		}
	}
	s := newSandbox().must(t, ready(lifecycle.Pause{Reason: lifecycle.ReasonIdleTTL})...)
	for _, end := range []lifecycle.Command{lifecycle.OperationDone{Operation: lifecycle.Pausing}, lifecycle.Unpause{}} {
		if !(lifecycle.Policy{}).Waits(s.state, lifecycle.StartExec{}) || (lifecycle.Policy{}).Waits(s.state, lifecycle.Use{}) {
			t.Errorf("%v, %v after it was idle: an exec does not wait", s.state.Phase, s.state.Operation)
		}
		s.must(t, end)
	}
	if s.must(t, lifecycle.OperationDone{Operation: lifecycle.Unpausing}); (lifecycle.Policy{}).Waits(s.state, lifecycle.StartExec{}) {
		t.Error("an exec waits for a sandbox that is READY")
	}
}

// TestFacts: what the end of work means.
func TestFacts(t *testing.T) {
	keep := lifecycle.Policy{Spec: &agboxv1.CreateSpec{OnCommandEnd: "keep"}}
	ended := lifecycle.CommandEnded{Result: finished}
	for _, c := range []struct {
		what   string
		policy lifecycle.Policy
		ended  lifecycle.Ended
		want   []lifecycle.Command
	}{
		{"a look finds nothing", lifecycle.Policy{}, lifecycle.Ended{}, nil},
		{"a look fails", lifecycle.Policy{}, lifecycle.Ended{Failed: true}, nil},
		{"a container died", lifecycle.Policy{}, lifecycle.Ended{Gone: true, Code: "X", Message: "m"}, []lifecycle.Command{lifecycle.Died{Code: "X", Message: "m"}}},
		{"a service is lost, one that was is", lifecycle.Policy{}, lifecycle.Ended{Lost: map[string]string{"db": "why", "old": "why"}},
			[]lifecycle.Command{lifecycle.ServiceReported{Service: "db", Code: runtime.CodeServiceNotRunning, Message: "why"}}},
		{"a stop is done, with ends on disk", lifecycle.Policy{},
			lifecycle.Ended{Operation: lifecycle.Stopping, Execs: map[string]runtime.ExecResult{"exec-1": finished}, Command: &finished},
			[]lifecycle.Command{lifecycle.ExecEnded{ExecID: "exec-1", Result: finished}, ended, lifecycle.OperationDone{Operation: lifecycle.Stopping}}},
		{"a stop fails", lifecycle.Policy{}, lifecycle.Ended{Operation: lifecycle.Stopping, Failed: true, Code: "X", Message: "m"},
			[]lifecycle.Command{lifecycle.OperationFailed{Operation: lifecycle.Stopping, Code: "X", Message: "m"}}},
		{"the command's end is found before all is ended for it", lifecycle.Policy{}, lifecycle.Ended{Command: &finished}, nil},
		{"the same, and it may end", keep, lifecycle.Ended{Command: &finished}, []lifecycle.Command{ended}},
		{"all is ended for it", lifecycle.Policy{}, lifecycle.Ended{Command: &finished, Halted: true}, []lifecycle.Command{lifecycle.CommandEnded{Result: finished, Fails: true}}},
		{"a pause finds it", lifecycle.Policy{}, lifecycle.Ended{Operation: lifecycle.Pausing, Command: &finished}, []lifecycle.Command{lifecycle.OperationDone{Operation: lifecycle.Pausing}}},
	} {
		s := newSandbox().must(t, ready(lifecycle.ServiceReported{Service: "db"}, lifecycle.ServiceReported{Service: "old", Code: "X"})...)
		if got := lifecycle.Facts(s.state, c.policy, c.ended); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.what, got, c.want)
		}
	}
}

func anyPolicy(t *rapid.T) lifecycle.Policy {
	seconds := rapid.IntRange(0, 90)
	duration := func(name string) *durationpb.Duration {
		if rapid.Bool().Draw(t, name+" is set") {
			return durationpb.New(time.Duration(seconds.Draw(t, name)) * time.Second)
		}
		return nil
	}
	how := rapid.SampledFrom([]string{"", "stop", "pause", "delete"})
	p := lifecycle.Policy{
		IdleTTL: time.Duration(seconds.Draw(t, "idle")) * time.Second, CleanupTTL: time.Duration(seconds.Draw(t, "cleanup")) * time.Second,
		Spec: &agboxv1.CreateSpec{IdleTtl: duration("own idle"), MaxDuration: duration("max"), OnIdle: how.Draw(t, "on idle"), OnExpiry: how.Draw(t, "on expiry")},
	}
	if rapid.Bool().Draw(t, "lease is set") {
		p.Spec.Lease = &agboxv1.LeaseSpec{Grace: duration("grace"), OnEnd: how.Draw(t, "on end")}
	}
	return p
}

// TestNextIsAccepted: in whatever state under whatever policy, what Next asks for is accepted when it is due, changes the state, and
// leads to rest; while a command runs, nothing ends the sandbox for being idle.
func TestNextIsAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSandbox()
		for range rapid.IntRange(1, 40).Draw(t, "length") {
			_, _ = s.do(anyCommand(t))
		}
		s.policy = anyPolicy(t)
		lease := lifecycle.Users{Since: start, Count: rapid.IntRange(0, 1).Draw(t, "holders")}
		for range 10 {
			next, at := lifecycle.Next(s.state, s.policy, lifecycle.Presence{Lease: lease}, s.now)
			if at.IsZero() {
				return
			}
			if s.state.Phase == lifecycle.None || s.state.Ending() {
				t.Fatalf("%v does %#v", s.state.Phase, next)
			}
			if at.After(s.now) {
				s.now = at
			}
			operation := s.state.Operation
			if next == nil {
				if !s.state.Begun(s.now) {
					t.Fatalf("at %v %v does not begin", at, operation)
				}
			} else {
				running := len(s.state.Running)
				events, err := s.do(next)
				if err != nil || len(events) == 0 {
					t.Fatalf("%#v in %v, %v leads to %v, %v", next, s.state.Phase, operation, names(events), err)
				}
				if reason := events[0].GetSandboxPhase().GetReason(); reason == lifecycle.ReasonIdleTTL && running > 0 {
					t.Fatalf("%s ends %d running commands", reason, running)
				}
				operation = s.state.Operation
			}
			if _, err := s.do(lifecycle.OperationDone{Operation: operation}); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatalf("it does not come to rest: %+v", s.state)
	})
}
