package pid1_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// initBinary is the real program, built once.
var initBinary string

func TestMain(m *testing.M) {
	if config := os.Getenv(stageVariable); config != "" {
		fmt.Fprintln(os.Stderr, "stage:", stage(config))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "agbox-init-test")
	if err == nil {
		initBinary = filepath.Join(dir, "agbox-init")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", initBinary, "../../cmd/agbox-init")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build of agbox-init:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const stageVariable = "AGBOX_INIT_TEST_STAGE"

// stageConfig is what a container engine would do between clone and exec of PID 1.
type stageConfig struct {
	Root      string
	ReadOnly  bool
	NoCaps    bool
	Unsealed  bool // may gain privileges, and has not the capability to filter its calls all the same
	UID       int
	Locks     uint64 // hard limit RLIMIT_LOCKS, 0: as it is
	Terminals int    // at most, 0: as many as the kernel has
	Fsize     uint64
	Cgroups   []string // to be in, on the host
	CgroupAt  string   // where the box sees the first, without the leading slash
	Args      []string
	Env       []string
}

// stage runs as PID 1 of the new namespaces and becomes agbox-init; it returns only errors.
func stage(config string) error {
	var c stageConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	mounts := []struct {
		source, target, fs string
		flags              uintptr
	}{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{c.Root, c.Root, "", syscall.MS_BIND},
		{"proc", c.Root + "/proc", "proc", 0},
		{"/dev/null", c.Root + "/dev/null", "", syscall.MS_BIND},
		{"tmp", c.Root + "/tmp", "tmpfs", 0},
		{"devpts", c.Root + "/dev/pts", "devpts", 0},
	}
	if c.ReadOnly {
		mounts = append(mounts, mounts[1])
		mounts[6].flags = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY
	}
	for _, dir := range c.Cgroups {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	if c.CgroupAt != "" {
		mounts = append(mounts, mounts[1])
		mounts[len(mounts)-1].source, mounts[len(mounts)-1].target = c.Cgroups[0], c.Root+"/"+c.CgroupAt
	}
	data := map[string]string{"devpts": "newinstance,ptmxmode=0666,mode=0620,gid=5"} // as a container has it
	for _, m := range mounts {
		if m.fs == "devpts" && c.Terminals > 0 {
			data[m.fs] += fmt.Sprintf(",max=%d", c.Terminals)
		}
		if err := syscall.Mount(m.source, m.target, m.fs, m.flags, data[m.fs]); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := syscall.Chroot(c.Root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if c.Locks != 0 {
		if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: c.Locks, Max: c.Locks}, nil); err != nil {
			return err
		}
	}
	if c.Fsize != 0 {
		if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: c.Fsize, Max: c.Fsize}, nil); err != nil {
			return err
		}
	}
	if c.Unsealed {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			return err
		}
	} else if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if c.NoCaps {
		for i := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, i, 0, 0, 0) == nil; i++ {
		}
	}
	if c.UID != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(c.UID); err != nil {
			return err
		}
		if err := syscall.Setuid(c.UID); err != nil {
			return err
		}
	}
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	return syscall.Exec("/.agbox/init", append([]string{"/.agbox/init"}, c.Args...), c.Env)
}

func TestVersion(t *testing.T) {
	out, err := exec.Command(initBinary, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "agbox-init ") {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestRefusesToRun(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"not PID 1":        {nil, "must be PID 1"},
		"unknown option":   {[]string{"--sockt=/x"}, "--sockt=/x: no such option"},
		"bad duration":     {[]string{"--stop-grace=soon"}, "not a duration"},
		"relative workdir": {[]string{"--workdir=work"}, "must be absolute"},
		"no number":        {[]string{"--entrypoint-words=all"}, "not a number of words"},
		"negative number":  {[]string{"--entrypoint-words=-1"}, "not a number of words"},
		"too few words":    {[]string{"--entrypoint-words=3", "--", "a", "b"}, `--entrypoint-words=3: only 2 words follow "--"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(initBinary, tt.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Fatalf("%q, %v; want %q", out, err, tt.want)
			}
		})
	}
}
