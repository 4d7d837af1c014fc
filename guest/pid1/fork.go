package pid1

import (
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/inherited"
)

// launch is all that it takes to start a command.
type launch struct {
	account
	switchUser bool
	dir        string
	paths      []string // of the program, each tried until one is there; relative ones are from dir
	argv, env  []string
	files      [3]int
	terminal   bool   // files[0] becomes the terminal of the command's session
	tag        uint64 // 0: none
	tagHard    uint64 // the limit that it is the soft one of
}

// The steps of a start that can fail. They are part of what a child reports.
const (
	stepSetup = iota
	stepUser
	stepDirectory
	stepProgram
)

// report is what a child that could not become its program writes: what failed, and at which path.
type report struct{ step, path, errno int32 }

const reportSize = int(unsafe.Sizeof(report{}))

// fork makes the process that becomes the command, in a session, and so a process group, of its own. It returns at once: the
// child has yet to go to its directory and to open its program, and what lies in the sandbox can hold it up for as long as it likes (a
// lease, a file system that does not answer). That is why this is no syscall.ForkExec, which waits for the child with a lock that
// every other start needs.
//
// What the child reports comes out of the second descriptor, which does not block: a report, or, once the program runs or the
// child has died, the end.
func (l *launch) fork() (pid, from int, err error) {
	argv, err := syscall.SlicePtrFromStrings(l.argv)
	if err != nil {
		return 0, -1, err
	}
	env, err := syscall.SlicePtrFromStrings(l.env)
	if err != nil {
		return 0, -1, err
	}
	paths, err := syscall.SlicePtrFromStrings(l.paths)
	if err != nil {
		return 0, -1, err
	}
	dir, err := syscall.BytePtrFromString(l.dir)
	if err != nil {
		return 0, -1, err
	}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, -1, err
	}
	pid, errno := l.clone(argv, env, paths[:len(l.paths)], dir, ends[1])
	syscall.Close(ends[1])
	if errno != 0 {
		syscall.Close(ends[0])
		return 0, -1, errno
	}
	return pid, ends[0], nil
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

const (
	closeRange    = 436 // the same number on every architecture
	accessAt      = syscall.SYS_FACCESSAT
	atCwd         = ^uintptr(99) // AT_FDCWD, -100
	oPath         = 0x200000     // O_PATH, which package syscall lacks
	setSeccomp    = 22           // PR_SET_SECCOMP
	seccompFilter = 2            // SECCOMP_MODE_FILTER
)

var (
	oomScorePath = []byte("/proc/self/oom_score_adj\x00")
	oomScore     = []byte("1000")
)

// clone is the fork proper. The child is a copy of this process with one thread: between beforeFork and its end it may do nothing but
// system calls, without a word to Go's runtime, and has no stack to grow.
//
//go:noinline
//go:norace
func (l *launch) clone(argv, env, paths []*byte, dir *byte, to int) (int, syscall.Errno) {
	var (
		r          report
		fd         uintptr
		errno      syscall.Errno
		refused    = int32(-1)
		files      = l.files
		mark       = rlimit{l.tag, l.tagHard}
		open       = rlimit{inherited.Files.Cur, inherited.Files.Max}
		filter     = seal
		groups     *uint32
		groupCount = uintptr(len(l.groups))
	)
	if len(l.groups) > 0 {
		groups = &l.groups[0]
	}
	beforeFork()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return int(pid), errno
	}
	afterForkInChild()

	// First of all the kernel is to take this process, and not PID 1, when there is no memory. It may not be allowed, nor to set a
	// mark; neither is needed to run.
	if fd, _, errno = syscall.RawSyscall6(syscall.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&oomScorePath[0])), syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0); errno == 0 {
		syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&oomScore[0])), uintptr(len(oomScore)))
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
	if mark.soft != 0 {
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimitLocks, uintptr(unsafe.Pointer(&mark)), 0, 0, 0)
		syscall.RawSyscall6(syscall.SYS_PRCTL, setSeccomp, seccompFilter, uintptr(unsafe.Pointer(filter)), 0, 0, 0)
	}
	if inherited.Known {
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&open)), 0, 0, 0)
	}

	if _, _, errno = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); errno != 0 {
		goto failed
	}
	for i := range files { // out of the way of what is set below
		for files[i] < 4 {
			if fd, _, errno = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(files[i]), syscall.F_DUPFD_CLOEXEC, 4); errno != 0 {
				goto failed
			}
			files[i] = int(fd)
		}
	}
	if to != 3 {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_DUP3, uintptr(to), 3, syscall.O_CLOEXEC); errno != 0 {
			goto failed
		}
		to = 3
	}
	for i := range files {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_DUP3, uintptr(files[i]), uintptr(i), 0); errno != 0 {
			goto failed
		}
	}
	syscall.RawSyscall(closeRange, 4, 1<<31-1, 0) // before anything can hold it up; a kernel that lacks it closes them with exec
	if l.terminal {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 1); errno != 0 {
			goto failed
		}
	}

	r.step = stepUser
	if l.switchUser {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETGROUPS, groupCount, uintptr(unsafe.Pointer(groups)), 0); errno != 0 {
			goto failed
		}
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETGID, uintptr(l.gid), 0, 0); errno != 0 {
			goto failed
		}
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETUID, uintptr(l.uid), 0, 0); errno != 0 {
			goto failed
		}
	}
	r.step = stepDirectory
	if _, _, errno = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(dir)), 0, 0); errno != 0 {
		goto failed
	}

	// As execvp: the first that there is, and that may be executed.
	r.step = stepProgram
	for i := range paths {
		path := uintptr(unsafe.Pointer(paths[i]))
		_, _, errno = syscall.RawSyscall(syscall.SYS_EXECVE, path, uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
		r.path = int32(i)
		switch errno {
		case syscall.ENOENT, syscall.ENOTDIR:
			if _, _, missing := syscall.RawSyscall6(accessAt, atCwd, path, 0, 0, 0, 0); missing == 0 {
				goto failed // what it needs is not there
			}
		case syscall.EACCES:
			if refused < 0 {
				refused = int32(i)
			}
		default:
			goto failed
		}
	}
	if r.path, errno = -1, syscall.ENOENT; refused >= 0 {
		r.path, errno = refused, syscall.EACCES
		path := uintptr(unsafe.Pointer(paths[refused]))
		if _, _, other := syscall.RawSyscall6(syscall.SYS_OPENAT, atCwd, path, oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0, 0, 0); other == 0 {
			errno = syscall.EISDIR
		}
	}

failed:
	r.errno = int32(errno)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(to), uintptr(unsafe.Pointer(&r)), uintptr(reportSize))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 126, 0, 0)
	}
}
