package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"syscall"

	"github.com/docker/go-units"

	"github.com/agbox-dev/agbox/guest/files"
)

// errNoRoom refuses what takes space on a disk that is nearly full.
var errNoRoom = errors.New("server: too little room on the disk")

// room fails with errNoRoom where a disk has less left than the operator wants kept for what is there already.
func (s *Server) room() error {
	left, place := s.left()
	if left >= s.config.DiskHeadroom {
		return nil
	}
	return fmt.Errorf("%w: %s has %s left, and limits.disk_headroom keeps %s for what is there already: nothing was recorded; delete sandboxes, snapshots or other files",
		errNoRoom, place, units.BytesSize(float64(left)), units.BytesSize(float64(s.config.DiskHeadroom)))
}

// left is what the fullest disk has left in bytes, and a directory on it.
func (s *Server) left() (left uint64, place string) {
	left = math.MaxUint64
	for _, directory := range s.runtime.Disks() {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(directory, &disk); err != nil {
			s.log.Warn("cannot tell how full a disk is", slog.String("path", directory), slog.Any("error", err))
			continue
		}
		if free := disk.Bavail * uint64(disk.Bsize); free <= left {
			left, place = free, directory
		}
	}
	return left, place
}

// uploadBounds is called when there is room.
func (s *Server) uploadBounds() files.Bounds {
	left, place := s.left()
	if left -= min(left, s.config.DiskHeadroom); s.config.MaxTransfer == 0 || left < s.config.MaxTransfer {
		return files.Bounds{Bytes: max(left, 1), Why: "that is what " + place + " has left beside limits.disk_headroom; delete sandboxes, snapshots or other files"}
	}
	return files.Bounds{Bytes: s.config.MaxTransfer, Why: whyTransfer}
}

func (s *Server) downloadBounds(p string) files.Bounds {
	return files.Bounds{Bytes: s.config.MaxTransfer, Why: whyTransfer, Directory: path.Dir(p)}
}

const whyTransfer = "limits.max_transfer says so; copy in parts, or have the operator raise it"
