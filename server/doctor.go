package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Doctor examines the engine, this host and what the daemon holds.
func (s *Server) Doctor(ctx context.Context, _ *agboxv1.DoctorRequest) (*agboxv1.DoctorResponse, error) {
	findings := []*agboxv1.Finding{found(ok, "agboxd", "", "%s runs with pid %d", s.config.Version, os.Getpid())}
	engine, err := s.runtime.Examine(ctx)
	if err != nil {
		engine = []*agboxv1.Finding{found(problem, "engine", "start it (systemctl start docker), or see what keeps it from answering", "%v", err)}
	}
	findings = append(findings, engine...)
	for _, place := range s.runtime.Disks() {
		findings = append(findings, s.diskFinding(place))
	}
	return &agboxv1.DoctorResponse{Findings: append(findings, inotifyFinding("/proc"), s.orphanFinding())}, nil
}

const (
	ok      = agboxv1.FindingLevel_FINDING_LEVEL_OK
	warning = agboxv1.FindingLevel_FINDING_LEVEL_WARNING
	problem = agboxv1.FindingLevel_FINDING_LEVEL_PROBLEM
)

func found(level agboxv1.FindingLevel, check, remedy, format string, args ...any) *agboxv1.Finding {
	return &agboxv1.Finding{Check: check, Level: level, Summary: fmt.Sprintf(format, args...), Remedy: remedy}
}

// nearlyFull is the part of a disk below which its end is near.
const nearlyFull = 20 // one in

func (s *Server) diskFinding(place string) *agboxv1.Finding {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(place, &disk); err != nil {
		return found(warning, "disk", "", "cannot tell how full the disk of %s is: %v", place, err)
	}
	left, size := disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)
	const remedy = "delete sandboxes or snapshots (agbox prune), or other files"
	text := fmt.Sprintf("%s has %s left of %s", place, units.BytesSize(float64(left)), units.BytesSize(float64(size)))
	switch {
	case left < s.config.DiskHeadroom:
		return found(problem, "disk", remedy, "%s, less than limits.disk_headroom: creates are refused, and output is dropped", text)
	case left < 2*s.config.DiskHeadroom || left < size/nearlyFull:
		return found(warning, "disk", remedy, "%s", text)
	}
	return found(ok, "disk", "", "%s", text)
}

// inotifyFinding counts the inotify instances of this user, which all processes share, those of sandboxes with the same uid
// included.
func inotifyFinding(proc string) *agboxv1.Finding {
	text, err := os.ReadFile(filepath.Join(proc, "sys/fs/inotify/max_user_instances"))
	most, parsed := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parsed != nil {
		return found(warning, "inotify", "", "cannot tell how many inotify instances there may be: %v", err)
	}
	used := 0
	descriptors, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*")) // the pattern is no bad one
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && target == "anon_inode:inotify" && ownedBy(filepath.Dir(filepath.Dir(descriptor)), os.Getuid()) {
			used++
		}
	}
	if used*5 >= most*4 {
		return found(warning, "inotify", "sysctl fs.inotify.max_user_instances=1024", "%d of %d inotify instances of this user are in use: followers of logs look again and again without one", used, most)
	}
	return found(ok, "inotify", "", "%d of %d inotify instances of this user are in use", used, most)
}

func ownedBy(path string, uid int) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && int(stat.Uid) == uid
}

func (s *Server) orphanFinding() *agboxv1.Finding {
	orphans, err := s.system.Orphans()
	switch {
	case err != nil:
		return found(problem, "orphans", "see agboxd's log", "cannot tell what no log knows: %v", err)
	case len(orphans) == 0:
		return found(ok, "orphans", "", "nothing in the engine or on disk is unknown to the database")
	}
	var names []string
	for _, o := range orphans {
		names = append(names, fmt.Sprintf("%s (removed %s)", o.SandboxID, o.RemovedAt.UTC().Format(time.RFC3339)))
	}
	return found(warning, "orphans", "agboxd --adopt takes them in; else they are removed at that time",
		"%d sandboxes carry this daemon's mark, and its database never knew them: %s", len(orphans), strings.Join(names, ", "))
}
