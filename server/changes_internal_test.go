package server

import (
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/guest/files"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// sink is a stream to a client that takes all.
type sink struct {
	grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]
	bytes int
}

func (s *sink) Send(m *agboxv1.DownloadFilesChunk) error {
	s.bytes += len(m.Data)
	return nil
}

// TestChangesAreBounded as other downloads are: the length of what a sandbox wrote says nothing of what it cost.
func TestChangesAreBounded(t *testing.T) {
	for most, want := range map[uint64]int{0: 3000, 3000: 3000, 2999: 2000} {
		out := &sink{}
		c := &chunks{stream: out, most: most}
		var err error
		for range 3 {
			if _, err = c.Write(make([]byte, 1000)); err != nil {
				break
			}
		}
		if out.bytes != want || errors.Is(err, files.ErrTooLarge) != (want < 3000) {
			t.Errorf("with %d: %d bytes went out, %v", most, out.bytes, err)
		}
	}
}
