package pid1_test

import (
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// TestBootAs: what was made ahead becomes what it is told, and nothing is started before that, whoever asks first.
func TestBootAs(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.held = true
	b.start("--workdir=/elsewhere")
	if fresh, err := link.Fresh(b.context(), b.link); err != nil || !fresh {
		t.Fatalf("fresh: %v, %v", fresh, err)
	}
	early := make(chan outcome, 1)
	go func() { early <- b.run("sh", "-c", "echo $MARK $OWN $(id -un) $PWD") }()
	stdout, stderr := b.primaryFile("stdout"), b.primaryFile("stderr")
	defer stdout.Close()
	defer stderr.Close()
	as := &link.Identity{Env: []string{"MARK=mine", "OWN=a=b"}, User: "other", Workdir: "/made"}
	for range 2 { // the second time it is what it is
		status, err := b.link.Boot(b.context(), as, stdout, stderr, nil)
		if err != nil || status.State != protocol.BootNone {
			t.Fatalf("%+v, %v", status, err)
		}
		as = &link.Identity{User: "agbox"}
	}
	b.expect(<-early, 0, "mine a=b other /made\n")
	if fresh, err := link.Fresh(b.context(), b.link); err != nil || fresh {
		t.Errorf("fresh: %v, %v", fresh, err)
	}
}
