package sdk

import (
	"io"
	"testing"

	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// Where a tail begins is known before there is anything of it: a restart in between must not move it.
func TestTailIsAnchored(t *testing.T) {
	_, socket := sdktest.Start(t)
	c, err := New(WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	box, err := c.CreateSandbox(t.Context(), Spec{Image: "debian"})
	if err != nil {
		t.Fatal(err)
	}
	exec, err := c.CreateExec(t.Context(), box.ID, []string{"sh", "-c", "echo up; exec sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	whole := c.ReadLog(t.Context(), exec.ID, WithFollow())
	defer whole.Close()
	if _, err := io.ReadFull(whole, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	tail := c.ReadLog(t.Context(), exec.ID, WithTail(0), WithFollow()).(*logReader)
	defer tail.Close()
	if err := tail.receive(); err != nil || tail.req.Offset != 3 || tail.req.TailBytes != nil || len(tail.rest) > 0 {
		t.Errorf("the next stream would ask for %v, %v", tail.req, err)
	}
}
