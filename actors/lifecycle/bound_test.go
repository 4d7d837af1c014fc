package lifecycle_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestTextOfOthers: whatever is said of a sandbox, its events can be kept and sent.
func TestTextOfOthers(t *testing.T) {
	bad := "a name of \xff, " + strings.Repeat("and many words ", 1<<17)
	state := lifecycle.New("box1", nil)
	for _, c := range []lifecycle.Command{
		lifecycle.Create{},
		lifecycle.Preparing{Phase: bad, Image: bad},
		lifecycle.ServiceReported{Service: "db", Code: bad, Message: bad},
		lifecycle.OperationDone{Operation: lifecycle.Creating},
		lifecycle.StartExec{ExecID: "exec-1"},
		lifecycle.ExecEnded{ExecID: "exec-1", Result: runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: bad, Message: bad}},
		lifecycle.Pause{},
		lifecycle.OperationFailed{Operation: lifecycle.Pausing, Code: bad, Message: bad},
		lifecycle.StartExec{ExecID: "exec-2"},
		lifecycle.CommandEnded{Result: runtime.ExecResult{Code: bad, Message: bad}, Fails: true},
		lifecycle.OperationFailed{Operation: lifecycle.Restarting, Code: bad, Message: bad},
		lifecycle.Quarantined{Message: bad},
		lifecycle.Delete{Reason: bad},
	} {
		events, err := lifecycle.Decide(state, again, c, start)
		if err != nil || len(events) == 0 {
			t.Fatalf("%T: %v, %v", c, events, err)
		}
		for _, event := range events {
			data, err := proto.Marshal(event)
			if err != nil || len(data) > 10<<10 {
				t.Errorf("%v of a %T has %d bytes, %v", event.EventType, c, len(data), err)
			}
			state = lifecycle.Fold(state, event)
		}
	}
}
