// Command inside does in a sandbox what nobody should have to fear there.
//
//	inside lease FILE...       take a lease on each file and give none back
//	inside flock DIRECTORY...  lock whatever is below the directories, and what the descriptors of PID 1 lead to
//	inside escape SECONDS      leave the command's session, family and mark behind, and sleep
//	inside hog MIB             fill so much memory
//	inside bomb                start processes without end
//	inside inotify             take every inotify instance that there is
//	inside terminals           take every terminal that there is
//	inside nofile PID N        let a process have N descriptors and no more
//	inside connect SOCKET N    connect to a socket N times, and say nonsense
//	inside deep DIRECTORY N    make N directories, each in the one before
//
// What holds something says "held" and stays for as long as its command does.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(2)
	}
}

var verbs = map[string]struct {
	least int
	do    func(args []string) error
}{
	"lease": {1, lease}, "flock": {1, flock}, "escape": {1, escape}, "hog": {1, hog}, "bomb": {0, bomb}, "inotify": {0, inotify},
	"terminals": {0, terminals}, "nofile": {2, nofile}, "connect": {2, connect}, "deep": {2, deep},
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do")
	}
	verb, known := verbs[args[0]]
	if !known || len(args) <= verb.least {
		return fmt.Errorf("%s: unknown, or it lacks an argument", args[0])
	}
	return verb.do(args[1:])
}

// hold says that what was to be taken is taken, and keeps it.
func hold() error {
	fmt.Println("held")
	time.Sleep(time.Hour)
	return nil
}

func lease(files []string) error {
	signal.Ignore(syscall.SIGIO) // which asks for it back
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		kept = append(kept, f)
	}
	return hold()
}

// kept are files that must not be collected.
var kept []*os.File

func flock(directories []string) error {
	lock := func(path string) {
		if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			kept = append(kept, f)
		}
	}
	for _, directory := range append(directories, "/proc/1/fd") {
		_ = filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				lock(path)
			}
			return nil
		})
	}
	return hold()
}

// escape is three generations: one that has a session of its own, its child that has another, and what that becomes.
func escape(args []string) error {
	const rlimitLocks = 10
	_ = unix.Setrlimit(rlimitLocks, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	_ = unix.Setrlimit(rlimitLocks, &unix.Rlimit{Cur: 77, Max: 77})
	for range 3 {
		for _, script := range []string{
			`exec sleep "$0"`,
			`(setsid sleep "$0" </dev/null >/dev/null 2>&1 &) &`,
			`ulimit -S -x unlimited 2>/dev/null; trap '' TERM HUP INT; setsid sh -c '(setsid sleep '"$0"' </dev/null >/dev/null 2>&1 &)' &`,
		} {
			child := exec.Command("/bin/sh", "-c", script, args[0])
			child.Env = []string{"PATH=/bin"}
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := child.Start(); err != nil {
				return err
			}
		}
	}
	fmt.Println("held")
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	return syscall.Exec("/bin/sleep", []string{"sleep", args[0]}, nil)
}

func hog(args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var all [][]byte
	for range mib {
		piece := make([]byte, 1<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
		all = append(all, piece)
	}
	fmt.Println("held", len(all))
	return hold()
}

func bomb([]string) error {
	fmt.Println("held")
	for {
		child := exec.Command("/proc/self/exe", "bomb")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if child.Start() != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

func inotify([]string) error {
	for {
		if _, err := unix.InotifyInit1(0); err != nil {
			return hold()
		}
	}
}

func terminals([]string) error {
	for {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			return hold()
		}
	}
}

func nofile(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil)
}

func connect(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	made := 0
	for i := range n {
		c, err := net.DialTimeout("unix", args[0], time.Second)
		if err != nil {
			continue
		}
		made++
		_, _ = c.Write([]byte(strings.Repeat("\xff", 100)))
		if i%2 == 0 {
			c.Close()
		}
	}
	fmt.Println("connected", made)
	return nil
}

func deep(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	name := strings.Repeat("d", 200)
	for range n {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		if err := os.Chdir(name); err != nil {
			return err
		}
	}
	return os.WriteFile("last", []byte("last\n"), 0o644)
}
