package limits_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// A sandbox with the least that may be asked for works, and goes on working when commands take all of it.
func TestLeastLimits(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{MemoryLimit: 16 << 20, PidsLimit: 48})
	for range 2 {
		if end, _, stderr := d.Exec(id, "sh", "-c", `x=0123456789abcdef; while :; do x="$x$x"; done`); !end.Resources.GetOom() || end.ExitCode != 137 {
			t.Errorf("a command that takes all memory ends with %v, %q", end, stderr)
		}
		bomb := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Timeout: durationpb.New(300 * time.Millisecond),
			Command: []string{"sh", "-c", "i=0; while test $i -lt 20; do sleep 300 & i=$((i+1)); done; wait"}})
		if end := d.ExecEnd(id, bomb.ExecId); !end.Resources.GetTimedOut() && end.ExitCode == 0 {
			t.Errorf("a command that takes all processes ends with %v", end)
		}
		servertest.Works(t, d, id)
		if _, err := d.ListFiles(t.Context(), &agboxv1.ListFilesRequest{SandboxId: id, Path: "/"}); err != nil {
			t.Error(err)
		}
	}
}
