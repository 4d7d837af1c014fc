package lifecycle_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var start = time.Unix(1_700_000_000, 0)

// sandbox drives the core as an actor does, one second for each command.
type sandbox struct {
	state  lifecycle.State
	policy lifecycle.Policy
	log    []*agboxv1.SandboxEvent
	now    time.Time
}

func newSandbox() *sandbox {
	return &sandbox{state: lifecycle.New("box-1", nil), now: start}
}

func (s *sandbox) do(c lifecycle.Command) ([]*agboxv1.SandboxEvent, error) {
	s.now = s.now.Add(time.Second)
	policy := s.policy
	if restarted, ok := c.(restarted); ok {
		c, policy = restarted.Command, again
	}
	events, err := lifecycle.Decide(s.state, policy, c, s.now)
	for _, e := range events {
		s.state = lifecycle.Fold(s.state, e)
	}
	s.log = append(s.log, events...)
	return events, err
}

func (s *sandbox) must(t *testing.T, commands ...lifecycle.Command) *sandbox {
	t.Helper()
	for _, c := range commands {
		if _, err := s.do(c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	return s
}

// Every state that a log can lead to, with the commands that do.
var states = []struct {
	name string
	path []lifecycle.Command
}{
	{"none", nil},
	{"creating", []lifecycle.Command{lifecycle.Create{}}},
	{"ready", ready()},
	{"running", ready(lifecycle.StartExec{ExecID: "exec-1"})},
	{"stopping", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Stop{Reason: "stop_requested"})},
	{"stopped", stopped()},
	{"resuming", stopped(lifecycle.Resume{})},
	{"ended", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.CommandEnded{Result: finished})},
	{"pausing", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Pause{})},
	{"paused", paused()},
	{"unpausing", paused(lifecycle.Unpause{})},
	{"draining", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Drain{})},
	{"killing", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Stop{}, lifecycle.Stop{Force: true})},
	{"dormant", []lifecycle.Command{lifecycle.Create{Lazy: true}}},
	{"making", []lifecycle.Command{lifecycle.Create{Lazy: true}, lifecycle.Use{}}},
	{"restarting", ready(restarted{lifecycle.Died{}})},
	{"halting", ready(restarted{lifecycle.Died{}}, lifecycle.Stop{})},
	{"failed", []lifecycle.Command{lifecycle.Create{}, lifecycle.OperationFailed{Operation: lifecycle.Creating, Message: "no image"}}},
	{"deleting", ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Delete{Reason: "delete_requested"})},
	{"deleted", ready(lifecycle.Delete{Reason: "delete_requested"}, lifecycle.OperationDone{Operation: lifecycle.Removing})},
}

func ready(more ...lifecycle.Command) []lifecycle.Command {
	return append([]lifecycle.Command{lifecycle.Create{}, lifecycle.OperationDone{Operation: lifecycle.Creating}}, more...)
}

func paused(more ...lifecycle.Command) []lifecycle.Command {
	return append(ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.Pause{}, lifecycle.OperationDone{Operation: lifecycle.Pausing}), more...)
}

func stopped(more ...lifecycle.Command) []lifecycle.Command {
	return append(ready(lifecycle.Stop{Reason: "idle_ttl"}, lifecycle.OperationDone{Operation: lifecycle.Stopping}), more...)
}

// restarted is a command to a sandbox that may be restarted three times.
type restarted struct{ lifecycle.Command }

var again = restarts(time.Second)

func restarts(backoff time.Duration) lifecycle.Policy {
	return lifecycle.Policy{Spec: &agboxv1.CreateSpec{RestartPolicy: &agboxv1.RestartPolicy{
		Mode: "on-failure", MaxRestarts: 3, Backoff: durationpb.New(backoff)}}}
}

var finished = runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: 7}

// What each command does in each state: the events it brings about, "-" for none, or the refusal.
var decisions = []struct {
	command lifecycle.Command
	want    map[string]string // "*" stands for the states that are not named
}{
	{lifecycle.Create{}, map[string]string{"none": "ACCEPTED", "*": "refused: exists"}},
	{lifecycle.Create{Warm: true}, map[string]string{"none": "ACCEPTED PREPARING READY", "*": "refused: exists"}},
	{lifecycle.Create{Lazy: true}, map[string]string{"none": "ACCEPTED", "*": "refused: exists"}},
	{lifecycle.Use{}, map[string]string{"none": "refused: not found", "dormant": "ACCEPTED", "*": "-"}},
	{lifecycle.IfUnchanged{Phase: lifecycle.Stopped, Since: start.Add(4 * time.Second), Then: lifecycle.Resume{}}, map[string]string{
		"none": "refused: not found", "stopped": "ACCEPTED", "*": "refused: invalid state"}},
	{lifecycle.IfUnchanged{Phase: lifecycle.Stopped, Since: start.Add(3 * time.Second), Then: lifecycle.Resume{}}, map[string]string{
		"none": "refused: not found", "*": "refused: invalid state"}},
	{lifecycle.Detach{}, map[string]string{"none": "refused: not found", "deleting": "refused: invalid state",
		"deleted": "refused: invalid state", "*": "DETACHED"}},
	{lifecycle.Resume{}, map[string]string{"none": "refused: not found", "stopped": "ACCEPTED", "dormant": "ACCEPTED", "*": "refused: invalid state"}},
	{lifecycle.Stop{Reason: "stop_requested"}, map[string]string{
		"none": "refused: not found", "ready": "STOP_REQUESTED", "running": "STOP_REQUESTED", "ended": "STOP_REQUESTED", "paused": "STOP_REQUESTED", "draining": "STOP_REQUESTED",
		"restarting": "STOP_REQUESTED", "*": "refused: invalid state"}},
	{lifecycle.Delete{Reason: "delete_requested"}, map[string]string{
		"none": "refused: not found", "deleting": "-", "deleted": "-", "*": "DELETE_REQUESTED"}},
	{lifecycle.Stop{Force: true}, map[string]string{
		"none": "refused: not found", "ready": "STOP_REQUESTED", "running": "STOP_REQUESTED", "ended": "STOP_REQUESTED",
		"paused": "STOP_REQUESTED", "draining": "STOP_REQUESTED", "stopping": "STOP_REQUESTED", "restarting": "STOP_REQUESTED", "halting": "STOP_REQUESTED", "*": "refused: invalid state"}},
	{lifecycle.Pause{}, map[string]string{"none": "refused: not found",
		"ready": "PAUSE_REQUESTED", "running": "PAUSE_REQUESTED", "ended": "PAUSE_REQUESTED", "*": "refused: invalid state"}},
	{lifecycle.Unpause{}, map[string]string{"none": "refused: not found", "paused": "UNPAUSE_REQUESTED", "*": "refused: invalid state"}},
	{lifecycle.Drain{}, map[string]string{"none": "refused: not found",
		"ready": "DRAIN_REQUESTED STOP_REQUESTED", "running": "DRAIN_REQUESTED", "ended": "DRAIN_REQUESTED", "*": "refused: invalid state"}},
	{lifecycle.Extend{}, map[string]string{"none": "refused: not found", "deleting": "refused: invalid state",
		"deleted": "refused: invalid state", "*": "EXTENDED"}},
	{lifecycle.OperationDone{Operation: lifecycle.Pausing}, map[string]string{"pausing": "PAUSED", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Unpausing}, map[string]string{"unpausing": "UNPAUSED", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Killing}, map[string]string{"killing": "EXEC_CANCELLED STOPPED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Pausing}, map[string]string{"pausing": "UNPAUSED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Unpausing}, map[string]string{"unpausing": "PAUSED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Killing}, map[string]string{"killing": "EXEC_FAILED FAILED", "*": "-"}},
	{lifecycle.StartExec{ExecID: "exec-2"}, map[string]string{
		"ready": "EXEC_STARTED", "running": "EXEC_STARTED", "ended": "EXEC_STARTED", "*": "refused: not ready"}},
	{lifecycle.StartExec{ExecID: "exec-1"}, map[string]string{
		"ready": "EXEC_STARTED", "running": "refused: exec exists", "ended": "refused: exec exists", "*": "refused: not ready"}},
	{lifecycle.CancelExec{ExecID: "exec-1"}, map[string]string{
		"running": "-", "ended": "-", "stopping": "-", "deleting": "-", "pausing": "-", "paused": "-", "unpausing": "-", "draining": "-", "killing": "-", "*": "refused: exec not running"}},
	{lifecycle.Preparing{Phase: "materialize"}, map[string]string{"creating": "PREPARING", "resuming": "PREPARING", "making": "PREPARING", "restarting": "PREPARING", "halting": "PREPARING", "*": "-"}},
	{lifecycle.ServiceReported{Service: "db"}, map[string]string{
		"making": "SERVICE_READY", "restarting": "SERVICE_READY", "halting": "SERVICE_READY",
		"creating": "SERVICE_READY", "resuming": "SERVICE_READY", "ready": "SERVICE_READY", "running": "SERVICE_READY", "ended": "SERVICE_READY",
		"stopping": "SERVICE_READY", "pausing": "SERVICE_READY", "paused": "SERVICE_READY", "unpausing": "SERVICE_READY", "draining": "SERVICE_READY", "killing": "SERVICE_READY", "*": "-"}},
	{lifecycle.ServiceReported{Service: "db", Code: "UNHEALTHY"}, map[string]string{
		"making": "SERVICE_FAILED", "restarting": "SERVICE_FAILED", "halting": "SERVICE_FAILED",
		"creating": "SERVICE_FAILED", "resuming": "SERVICE_FAILED", "ready": "SERVICE_FAILED", "running": "SERVICE_FAILED", "ended": "SERVICE_FAILED",
		"stopping": "SERVICE_FAILED", "pausing": "SERVICE_FAILED", "paused": "SERVICE_FAILED", "unpausing": "SERVICE_FAILED", "draining": "SERVICE_FAILED", "killing": "SERVICE_FAILED", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Creating}, map[string]string{"creating": "READY", "making": "READY", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Resuming}, map[string]string{"resuming": "READY", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Restarting}, map[string]string{"restarting": "READY", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Restarting}, map[string]string{"restarting": "FAILED", "*": "-"}},
	{restarted{lifecycle.OperationFailed{Operation: lifecycle.Restarting}}, map[string]string{"restarting": "RESTARTING", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Stopping}, map[string]string{"stopping": "EXEC_CANCELLED STOPPED", "halting": "STOPPED", "*": "-"}},
	{lifecycle.OperationDone{Operation: lifecycle.Removing}, map[string]string{"deleting": "EXEC_CANCELLED DELETED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Creating}, map[string]string{"creating": "FAILED", "making": "DORMANT", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Resuming}, map[string]string{"resuming": "FAILED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Stopping}, map[string]string{"stopping": "EXEC_FAILED FAILED", "halting": "FAILED", "*": "-"}},
	{lifecycle.OperationFailed{Operation: lifecycle.Removing}, map[string]string{"deleting": "EXEC_FAILED FAILED", "*": "-"}},
	{lifecycle.OperationDone{}, map[string]string{"*": "-"}},
	{lifecycle.OperationFailed{}, map[string]string{"*": "-"}},
	{lifecycle.Died{Code: "CONTAINER_NOT_RUNNING"}, map[string]string{
		"ready": "FAILED", "running": "EXEC_FAILED FAILED", "ended": "EXEC_FAILED FAILED", "paused": "EXEC_FAILED FAILED", "draining": "EXEC_FAILED FAILED", "*": "-"}},
	{restarted{lifecycle.Died{Code: "CONTAINER_NOT_RUNNING"}}, map[string]string{
		"ready": "RESTARTING", "running": "EXEC_FAILED RESTARTING", "ended": "EXEC_FAILED RESTARTING", "paused": "EXEC_FAILED FAILED", "draining": "EXEC_FAILED FAILED", "*": "-"}},
	{restarted{lifecycle.CommandEnded{Result: finished, Fails: true}}, map[string]string{
		"ready": "COMMAND_ENDED RESTARTING", "running": "COMMAND_ENDED EXEC_FAILED RESTARTING", "ended": "-", "stopping": "COMMAND_ENDED", "paused": "COMMAND_ENDED EXEC_FAILED FAILED", "draining": "COMMAND_ENDED EXEC_FAILED FAILED", "pausing": "COMMAND_ENDED", "unpausing": "COMMAND_ENDED", "killing": "COMMAND_ENDED", "*": "-"}},
	{lifecycle.CommandEnded{Result: finished, Fails: true}, map[string]string{
		"ready": "COMMAND_ENDED FAILED", "running": "COMMAND_ENDED EXEC_FAILED FAILED", "ended": "-", "stopping": "COMMAND_ENDED", "paused": "COMMAND_ENDED EXEC_FAILED FAILED", "draining": "COMMAND_ENDED EXEC_FAILED FAILED", "pausing": "COMMAND_ENDED", "unpausing": "COMMAND_ENDED", "killing": "COMMAND_ENDED", "*": "-"}},
	{lifecycle.CommandEnded{Result: finished}, map[string]string{
		"ready": "COMMAND_ENDED", "running": "COMMAND_ENDED", "ended": "-", "stopping": "COMMAND_ENDED", "pausing": "COMMAND_ENDED", "paused": "COMMAND_ENDED", "unpausing": "COMMAND_ENDED", "draining": "COMMAND_ENDED", "killing": "COMMAND_ENDED", "*": "-"}},
	{lifecycle.Quarantined{Message: "crashed"}, map[string]string{
		"none": "-", "failed": "-", "deleted": "-", "running": "EXEC_FAILED FAILED", "ended": "EXEC_FAILED FAILED", "stopping": "EXEC_FAILED FAILED",
		"deleting": "EXEC_FAILED FAILED", "pausing": "EXEC_FAILED FAILED", "paused": "EXEC_FAILED FAILED", "unpausing": "EXEC_FAILED FAILED", "draining": "EXEC_FAILED FAILED", "killing": "EXEC_FAILED FAILED", "*": "FAILED"}},
	{lifecycle.ExecEnded{ExecID: "exec-1", Result: finished}, map[string]string{
		"running": "EXEC_FINISHED", "ended": "EXEC_FINISHED", "stopping": "EXEC_FINISHED", "deleting": "EXEC_FINISHED", "pausing": "EXEC_FINISHED", "paused": "EXEC_FINISHED", "unpausing": "EXEC_FINISHED", "draining": "EXEC_FINISHED STOP_REQUESTED", "killing": "EXEC_FINISHED", "*": "-"}},
}

var refusals = map[string]error{
	"exists": lifecycle.ErrAlreadyExists, "not found": lifecycle.ErrNotFound, "invalid state": lifecycle.ErrInvalidState,
	"not ready": lifecycle.ErrNotReady, "exec exists": lifecycle.ErrExecExists, "exec not running": lifecycle.ErrExecNotRunning,
}

func TestEveryCommandInEveryState(t *testing.T) {
	for _, decision := range decisions {
		for _, state := range states {
			t.Run(fmt.Sprintf("%T%v/%s", decision.command, decision.command, state.name), func(t *testing.T) {
				want, named := decision.want[state.name]
				if !named {
					want = decision.want["*"]
				}
				s := newSandbox().must(t, state.path...)
				before := s.state
				events, err := s.do(decision.command)
				if kind, refused := strings.CutPrefix(want, "refused: "); refused {
					if !errors.Is(err, refusals[kind]) || len(events) != 0 {
						t.Fatalf("got events %v, error %v; want the refusal %q", names(events), err, kind)
					}
					if before.Sequence != s.state.Sequence {
						t.Fatal("a refusal changed the state")
					}
					return
				}
				if got := names(events); err != nil || got != want {
					t.Fatalf("got %q, error %v; want %q", got, err, want)
				}
			})
		}
	}
}

func names(events []*agboxv1.SandboxEvent) string {
	if len(events) == 0 {
		return "-"
	}
	var list []string
	for _, e := range events {
		list = append(list, strings.TrimPrefix(e.EventType.String(), "SANDBOX_"))
	}
	return strings.Join(list, " ")
}

func TestEventsTellReasonsAndErrors(t *testing.T) {
	s := newSandbox().must(t, states[4].path...) // stopping
	s.must(t, lifecycle.OperationDone{Operation: lifecycle.Stopping})
	last := s.log[len(s.log)-1]
	if last.GetSandboxPhase().GetReason() != "stop_requested" || last.SandboxState != lifecycle.Stopped {
		t.Errorf("STOPPED is %v", last)
	}
	s.must(t, lifecycle.Resume{}, lifecycle.OperationFailed{Operation: lifecycle.Resuming, Message: "network is gone"})
	if s.state.ErrorCode != lifecycle.CodeResumeFailed || s.state.ErrorMessage != "network is gone" {
		t.Errorf("state after a failed resume is %+v", s.state)
	}
	s.must(t, lifecycle.Delete{Reason: "delete_requested"})
	if s.state.ErrorCode != "" || s.state.ErrorMessage != "" {
		t.Errorf("the error stays beyond FAILED: %+v", s.state)
	}
	s.must(t, lifecycle.OperationFailed{Operation: lifecycle.Removing, Code: "BUSY", Message: "held"})
	if s.state.ErrorCode != "BUSY" {
		t.Errorf("the runtime's own code is lost: %+v", s.state)
	}
	s.must(t, lifecycle.Delete{Reason: "cleanup_ttl"}, lifecycle.OperationDone{Operation: lifecycle.Removing})
	if reason := s.log[len(s.log)-1].GetSandboxPhase().GetReason(); reason != "cleanup_ttl" {
		t.Errorf("DELETED has reason %q", reason)
	}
}

func TestIdle(t *testing.T) {
	for _, state := range states {
		want := state.name == "ready"
		if got := newSandbox().must(t, state.path...).state.Idle(); got != want {
			t.Errorf("%s is idle: %v", state.name, got)
		}
	}
	s := newSandbox().must(t, ready(lifecycle.StartExec{ExecID: "exec-1"}, lifecycle.ExecEnded{ExecID: "exec-1", Result: finished})...)
	if !s.state.Idle() || !s.state.ActiveAt.AsTime().Equal(s.now) {
		t.Errorf("after its only exec the sandbox is %+v, want idle since %v", s.state, s.now)
	}
}

func TestFoldDoesNotChangeEarlierStates(t *testing.T) {
	s := newSandbox().must(t, ready(lifecycle.StartExec{ExecID: "exec-1"})...)
	earlier := s.state
	s.must(t, lifecycle.StartExec{ExecID: "exec-2"}, lifecycle.ExecEnded{ExecID: "exec-1", Result: finished})
	if ids := slices.Collect(maps.Keys(earlier.Running)); !slices.Equal(ids, []string{"exec-1"}) {
		t.Errorf("an earlier state now has execs %v", ids)
	}
}

// TestServicesAreToldOnce: what was told of a service is told again only after a resume, or when it has changed.
func TestServicesAreToldOnce(t *testing.T) {
	up, down := lifecycle.ServiceReported{Service: "db"}, lifecycle.ServiceReported{Service: "db", Code: "X", Message: "gone"}
	s := newSandbox().must(t, ready(up)...)
	for _, step := range []struct {
		command lifecycle.Command
		want    string
	}{{up, "-"}, {down, "SERVICE_FAILED"}, {down, "-"}, {up, "SERVICE_READY"}} {
		if events, err := s.do(step.command); err != nil || names(events) != step.want {
			t.Errorf("%+v leads to %s, %v; want %s", step.command, names(events), err, step.want)
		}
	}
	s.must(t, lifecycle.Stop{}, lifecycle.OperationDone{Operation: lifecycle.Stopping}, lifecycle.Resume{})
	if of := s.state.Services["db"]; of != lifecycle.ServiceAgain {
		t.Errorf("after a resume was accepted the service is %v", of)
	}
	if events, _ := s.do(up); names(events) != "SERVICE_READY" || s.state.Services["db"] != lifecycle.ServiceReady {
		t.Errorf("after a resume it is told %s, state %v", names(events), s.state.Services)
	}
}

// TestPortsAndCommand: ports are known while READY, and each life of the sandbox has its own end of the command.
func TestPortsAndCommand(t *testing.T) {
	ports := []*agboxv1.PublishedPort{{ContainerPort: 80, HostPort: 32768}}
	s := newSandbox().must(t, lifecycle.Create{}, lifecycle.OperationDone{Operation: lifecycle.Creating, Ports: ports})
	if len(s.state.Ports) != 1 {
		t.Errorf("READY has the ports %v", s.state.Ports)
	}
	s.must(t, lifecycle.CommandEnded{Result: finished}, lifecycle.Stop{}, lifecycle.OperationDone{Operation: lifecycle.Stopping})
	if s.state.Ports != nil || !s.state.CommandEnded {
		t.Errorf("STOPPED has the ports %v, command ended: %v", s.state.Ports, s.state.CommandEnded)
	}
	s.must(t, lifecycle.Resume{}, lifecycle.OperationDone{Operation: lifecycle.Resuming})
	if s.state.CommandEnded {
		t.Error("after a resume the command counts as ended")
	}
	s.must(t, lifecycle.CommandEnded{Result: runtime.ExecResult{Signal: 9, ExitCode: 137}, Fails: true})
	if s.state.ErrorCode != lifecycle.CodeCrashed || !strings.Contains(s.state.ErrorMessage, "signal 9") {
		t.Errorf("FAILED says %s: %s", s.state.ErrorCode, s.state.ErrorMessage)
	}
}

// TestDeadlinesAreExtended: what an Extend sets is in force, and what it leaves out stays.
func TestDeadlinesAreExtended(t *testing.T) {
	expires, ttl := start.Add(time.Hour), time.Minute
	s := newSandbox().must(t, ready(lifecycle.Extend{ExpiresAt: &expires}, lifecycle.Extend{IdleTTL: &ttl})...)
	if !s.state.Extended || !s.state.ExpiresAt.AsTime().Equal(expires) || s.state.IdleTtl == nil || s.state.IdleTtl.AsDuration() != ttl || !s.state.ActiveAt.AsTime().Equal(s.now) {
		t.Errorf("the state is %+v", s.state)
	}
	s.must(t, lifecycle.Extend{ExpiresAt: &time.Time{}})
	if !s.state.Extended || s.state.ExpiresAt != nil {
		t.Errorf("a deadline that was taken away is %v", s.state.ExpiresAt)
	}
}

// TestRestarts: each one in a row waits twice as long, up to a limit, and so many are tried; a sandbox that was steady
// begins anew.
func TestRestarts(t *testing.T) {
	died := lifecycle.Died{Code: "X", Message: "gone"}
	up := lifecycle.OperationDone{Operation: lifecycle.Restarting}
	s := newSandbox().must(t, ready()...)
	s.policy = restarts(2 * time.Minute)
	for n, wait := range []time.Duration{2 * time.Minute, 4 * time.Minute, 5 * time.Minute} {
		s.must(t, died)
		last := s.log[len(s.log)-1].GetSandboxPhase()
		if s.state.Restarts != uint32(n+1) || s.state.RestartAt.AsTime().Sub(s.now) != wait || s.state.Phase != lifecycle.Pending ||
			last.Restarts != uint32(n+1) || !proto.Equal(last.RestartAt, s.state.RestartAt) || last.ErrorCode != "X" || last.ErrorMessage != "gone" {
			t.Errorf("restart %d is %v, state %+v", n+1, last, s.state)
		}
		s.must(t, up)
	}
	steady := *s
	s.must(t, died)
	if s.state.Phase != lifecycle.Failed || !strings.Contains(s.state.ErrorMessage, "gone (after 3 restarts in a row)") {
		t.Errorf("after its last restart the sandbox is %+v", s.state)
	}
	steady.now = steady.now.Add(10 * time.Minute)
	if steady.must(t, died); steady.state.Restarts != 1 {
		t.Errorf("the restart of a steady sandbox is %d", steady.state.Restarts)
	}
	steady.must(t, lifecycle.Stop{}, lifecycle.OperationDone{Operation: lifecycle.Stopping}, lifecycle.Resume{})
	if steady.state.Restarts != 0 {
		t.Errorf("after a resume there were %d restarts", steady.state.Restarts)
	}
}

// TestDormant: every failure is told, and the next use tries again.
func TestDormant(t *testing.T) {
	failed := lifecycle.OperationFailed{Operation: lifecycle.Creating, Message: "no image"}
	s := newSandbox().must(t, lifecycle.Create{Lazy: true}, lifecycle.Use{}, failed)
	if _, err := s.do(lifecycle.StartExec{ExecID: "exec-1"}); err == nil || !strings.Contains(err.Error(), "no image; the next use tries again") {
		t.Errorf("an exec is refused with %v", err)
	}
	if s.state.ErrorCode != lifecycle.CodeCreateFailed || s.state.ErrorMessage != "no image" || s.state.Phase != lifecycle.Dormant {
		t.Errorf("the state is %+v", s.state)
	}
	s.must(t, lifecycle.Resume{})
	if s.state.ErrorCode != "" || s.state.ErrorMessage != "" || s.state.Operation != lifecycle.Creating {
		t.Errorf("during the next try the state is %+v", s.state)
	}
	s.must(t, lifecycle.OperationDone{Operation: lifecycle.Creating}, lifecycle.Stop{}, lifecycle.OperationDone{Operation: lifecycle.Stopping}, lifecycle.Resume{})
	if s.state.Lazy || s.state.Operation != lifecycle.Resuming {
		t.Errorf("after it was made a resume leads to %+v", s.state)
	}
}

// TestOutOfMemory: the end of the own command for want of memory has a code of its own.
func TestOutOfMemory(t *testing.T) {
	result := runtime.ExecResult{Signal: 9, ExitCode: 137, Resources: &agboxv1.ExecResources{Oom: true}}
	s := newSandbox().must(t, ready(lifecycle.CommandEnded{Result: result, Fails: true})...)
	if s.state.ErrorCode != runtime.CodeOutOfMemory || !strings.Contains(s.state.ErrorMessage, "out of memory") {
		t.Errorf("FAILED says %s: %s", s.state.ErrorCode, s.state.ErrorMessage)
	}
}
