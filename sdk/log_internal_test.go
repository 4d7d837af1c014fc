package sdk

import (
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Where a tail begins is known before there is anything of it: a restart in between must not move it.
func TestTailIsAnchored(t *testing.T) {
	at := logPlace{req: &agboxv1.ReadExecLogRequest{TailBytes: new(uint64), Follow: true}}
	if chunk := at.take(&agboxv1.ExecLogChunk{Offset: 3}); len(chunk.Data) > 0 || at.req.Offset != 3 || at.req.TailBytes != nil {
		t.Errorf("the next stream would ask for %v", at.req)
	}
}
