package servertest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// SandboxLogReader is one reading of a sandbox's log, which keeps what it has read by stream.
type SandboxLogReader struct {
	t      *testing.T
	stream *raw.SandboxLogStream
	Got    map[string]*strings.Builder
}

// ReadSandboxLog begins a reading, which ends with the test at the latest.
func ReadSandboxLog(t *testing.T, c *raw.Client, req *agboxv1.ReadSandboxLogRequest) *SandboxLogReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := c.ReadSandboxLog(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	return &SandboxLogReader{t: t, stream: stream, Got: map[string]*strings.Builder{"": {}, "stdout": {}, "stderr": {}}}
}

// Next takes in a chunk and returns what ends the reading.
func (r *SandboxLogReader) Next() error {
	chunk, err := r.stream.Recv()
	if err == nil && len(chunk.Data) > 64<<10 {
		r.t.Errorf("a chunk has %d bytes", len(chunk.Data))
	}
	r.Got[chunk.GetStream()].Write(chunk.GetData())
	return err
}

// Until reads on to a text.
func (r *SandboxLogReader) Until(stream, text string) {
	r.t.Helper()
	for seen := 0; ; {
		got := r.Got[stream].String()
		if strings.Contains(got[max(seen-len(text), 0):], text) {
			return
		}
		seen = len(got)
		if err := r.Next(); err != nil {
			r.t.Fatalf("%q does not come after %.2000q: %v", text, got, err)
		}
	}
}

// End reads to the end and returns all of it.
func (r *SandboxLogReader) End() map[string]string {
	r.t.Helper()
	for {
		switch err := r.Next(); {
		case errors.Is(err, io.EOF):
			all := map[string]string{}
			for stream, text := range r.Got {
				all[stream] = text.String()
			}
			return all
		case err != nil:
			r.t.Fatalf("after %.2000q: %v", r.Got[""].String(), err)
		}
	}
}

// Close ends the reading before its end.
func (r *SandboxLogReader) Close() { r.stream.Close() }
