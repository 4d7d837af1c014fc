package measure

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/test/bench/figure"
)

// machine describes this one.
func (b *Bench) machine(ctx context.Context) (figure.Machine, error) {
	m := figure.Machine{CPU: "unknown make", Cores: runtime.NumCPU()}
	version, err := b.engine.ServerVersion(ctx)
	if err != nil {
		return m, err
	}
	m.Engine = "Docker " + version.Version
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	if memory, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = field(string(memory), "MemTotal:") / 1024
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(load), &m.Load) // else it is not known
	}
	if cpus, err := os.Open("/proc/cpuinfo"); err == nil {
		defer cpus.Close()
		for lines := bufio.NewScanner(cpus); lines.Scan(); {
			if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	m.Disk = disk(os.TempDir())
	return m, nil
}

// disk names the kind of file system that a path is on.
func disk(path string) string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return "an unknown file system"
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	}
	return fmt.Sprintf("a file system of type %#x", fs.Type)
}
