package gateway

import (
	"net"
	"net/http"
	"testing"
)

// TestHijackedIsCounted: a connection that net/http has let go of counts until it closes.
func TestHijackedIsCounted(t *testing.T) {
	t.Parallel()
	d := &doors{open: map[*door]struct{}{}}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	conn := &threshold{ours, d}
	d.enter(t.Context(), conn)
	d.changed(conn, http.StateHijacked)
	if len(d.open) != 1 {
		t.Errorf("%d connections are counted, want 1", len(d.open))
	}
	conn.Close()
	if len(d.open) != 0 {
		t.Errorf("%d connections are counted, and it is closed", len(d.open))
	}
}
