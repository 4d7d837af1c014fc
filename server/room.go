package server

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/docker/go-units"
)

// errNoRoom refuses what takes space on a disk that is nearly full.
var errNoRoom = errors.New("server: too little room on the disk")

// room fails with errNoRoom where a disk has less left than the operator wants kept for what is there already.
func (s *Server) room() error {
	for _, place := range s.runtime.Disks() {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(place, &disk); err != nil {
			s.log.Warn("cannot tell how full a disk is", slog.String("path", place), slog.Any("error", err))
			continue
		}
		if left := disk.Bavail * uint64(disk.Bsize); left < s.config.DiskHeadroom {
			return fmt.Errorf("%w: %s has %s left, and limits.disk_headroom keeps %s for what is there already: nothing was recorded; delete sandboxes, snapshots or other files",
				errNoRoom, place, units.BytesSize(float64(left)), units.BytesSize(float64(s.config.DiskHeadroom)))
		}
	}
	return nil
}
