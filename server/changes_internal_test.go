package server

import (
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/guest/files"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestChangesAreBounded as other downloads are: the length of what a sandbox wrote says nothing of what it cost.
func TestChangesAreBounded(t *testing.T) {
	for most, want := range map[uint64]int{0: 3000, 3000: 3000, 2999: 2000} {
		bytes := 0
		c := &chunks{most: most, send: func(m *agboxv1.DownloadFilesChunk) error { bytes += len(m.Data); return nil }}
		var err error
		for range 3 {
			if _, err = c.Write(make([]byte, 1000)); err != nil {
				break
			}
		}
		if bytes != want || errors.Is(err, files.ErrTooLarge) != (want < 3000) {
			t.Errorf("with %d: %d bytes went out, %v", most, bytes, err)
		}
	}
}
