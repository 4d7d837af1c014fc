package pid1

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/inherited"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/process"
)

// launch is all that it takes to start a command.
type launch struct {
	account.Account
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

// attempt is one fork of a launch, with all that the child needs, as the kernel takes it.
type attempt struct {
	*launch
	of               *execution
	argv, env, paths []*byte
	dir              *byte
	to               int   // descriptor that a child with memory of its own reports to, -1 for one that shares it
	mine             []int // descriptors that are closed once the child has its own
	// pid is the child's, or less than zero for the errno for which there is none. The kernel sets it before the child runs.
	pid int32
	// told is what a child that shares memory reports, before over is set: it has become its program or died.
	told report
	over atomic.Bool
}

// attempt gets l ready to be forked.
func (l *launch) attempt(of *execution, mine []int) (a *attempt, err error) {
	a = &attempt{launch: l, of: of, mine: mine, to: -1}
	if a.argv, err = syscall.SlicePtrFromStrings(l.argv); err != nil {
		return nil, err
	}
	if a.env, err = syscall.SlicePtrFromStrings(l.env); err != nil {
		return nil, err
	}
	if a.paths, err = syscall.SlicePtrFromStrings(l.paths); err != nil {
		return nil, err
	}
	a.paths = a.paths[:len(l.paths)]
	a.dir, err = syscall.BytePtrFromString(l.dir)
	return a, err
}

// The process that becomes the command gets a session, and so a process group, of its own. It goes to its directory and opens its program
// itself, and what lies in the sandbox can hold it up for as long as it likes (a lease, a file system that does not answer).
//
// A child that shares this process's memory until then takes a third of the time of one that gets a copy, and has the thread of the caller
// wait for it: that is for the forkers. Neither is a syscall.ForkExec, which waits with a lock that every other start needs.

// share forks with memory in common, and returns once the program runs, or does not.
func (a *attempt) share() {
	a.forked(a.cloneShared())
	a.over.Store(true)
}

// copy forks with a copy of the memory, and returns at once. What the child reports will come out of the descriptor, which does not block: a
// report, or, once the program runs or the child has died, the end.
func (a *attempt) copy() (from int, err error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return -1, err
	}
	a.to = ends[1]
	errno := a.clone(uintptr(syscall.SIGCHLD) | parentSetTid)
	afterFork()
	a.forked(errno)
	syscall.Close(a.to)
	return ends[0], nil
}

func (a *attempt) forked(errno syscall.Errno) {
	if errno != 0 {
		atomic.StoreInt32(&a.pid, -int32(errno))
	}
	a.wake() // a child that was killed at once has not
	runtime.KeepAlive(a)
	kernel.CloseAll(a.mine)
}

// cloneShared tells Go's runtime, as around each system call that waits, that this thread will do nothing for it meanwhile.
//
//go:nosplit
//go:norace
func (a *attempt) cloneShared() syscall.Errno {
	enterSyscall()
	errno := a.clone(uintptr(syscall.SIGCHLD) | parentSetTid | shareMemory | untilExec)
	afterFork()
	exitSyscall()
	return errno
}

// await returns pid as soon as it is set, for which nothing in the sandbox is needed.
func (a *attempt) await() int32 {
	if atomic.LoadInt32(&a.pid) == 0 {
		runtime.Gosched() // the forker may not have begun
	}
	for atomic.LoadInt32(&a.pid) == 0 {
		syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.pid)), futexWait, 0, 0, 0, 0)
	}
	return a.pid
}

//go:nosplit
func (a *attempt) wake() {
	syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.pid)), futexWake, 1)
}

// forkers is how many starts may share memory at a time, each with a thread that waits. More at once wait for one of them, for
// forkPatience; then all are held up by what lies in the sandbox, and copies are made.
const (
	forkers      = 2
	forkPatience = 20 * time.Millisecond
)

func fork(attempts <-chan *attempt, ready chan<- *execution) {
	for a := range attempts {
		a.share()
		ready <- a.of
	}
}

// rawClone is the system call. With shareMemory it returns twice on one stack, for which it keeps its return address in a register.
//
//go:noescape
func rawClone(flags uintptr, pid *int32) (r1, errno uintptr)

//go:linkname enterSyscall runtime.entersyscallblock
func enterSyscall()

//go:linkname exitSyscall runtime.exitsyscall
func exitSyscall()

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

const (
	closeRange = 436 // the same number on every architecture
	accessAt   = syscall.SYS_FACCESSAT
	atCwd      = ^uintptr(99) // AT_FDCWD, -100
	futexWait  = 0 | 128      // FUTEX_WAIT, FUTEX_PRIVATE_FLAG
	futexWake  = 1 | 128

	// Flags of clone. The last has the caller wait, and the kernel neither take the child for want of memory, and this process with
	// it, nor set this process's oom_score_adj with the child's.
	parentSetTid = 0x00100000
	shareMemory  = 0x00000100
	untilExec    = 0x00004000 // CLONE_VFORK
)

var (
	oomScorePath = []byte("/proc/self/oom_score_adj\x00")
	oomScore     = []byte("1000")
)

// clone is the fork proper. Between beforeFork and its end the child may do nothing but system calls, without a word to Go's runtime, and
// has no stack to grow; nor may it write what the parent reads, whose frame this one is too, but for told. After clone the parent calls afterFork.
//
//go:noinline
//go:norace
//go:nosplit
func (a *attempt) clone(flags uintptr) syscall.Errno {
	var (
		r          report
		fd         uintptr
		errno      syscall.Errno
		l          = a.launch
		to         = a.to
		first      = uintptr(4) // descriptor that the program does not get
		refused    = int32(-1)
		files      = l.files
		mark       = process.Limit{Soft: l.tag, Hard: l.tagHard}
		open       = process.Limit{Soft: inherited.Files.Cur, Hard: inherited.Files.Max}
		filter     = process.Seal
		groups     *uint32
		groupCount = uintptr(len(l.Groups))
	)
	if len(l.Groups) > 0 {
		groups = &l.Groups[0]
	}
	beforeFork()
	if pid, failed := rawClone(flags, &a.pid); failed != 0 || pid != 0 {
		return syscall.Errno(failed)
	}
	a.wake()

	// First of all the kernel is to take this process, and not PID 1, when there is no memory. It may not be allowed, nor to set a
	// mark; neither is needed to run.
	if fd, _, errno = syscall.RawSyscall6(syscall.SYS_OPENAT, atCwd, uintptr(unsafe.Pointer(&oomScorePath[0])), syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0); errno == 0 {
		syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&oomScore[0])), uintptr(len(oomScore)))
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
	if mark.Soft != 0 {
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, process.LimitLocks, uintptr(unsafe.Pointer(&mark)), 0, 0, 0)
		syscall.RawSyscall6(syscall.SYS_PRCTL, process.SetSeccomp, process.SeccompFilter, uintptr(unsafe.Pointer(filter)), 0, 0, 0)
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
	if to < 0 {
		first = 3
	} else if to != 3 {
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
	syscall.RawSyscall(closeRange, first, 1<<31-1, 0) // before anything can hold it up; a kernel that lacks it closes them with exec
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
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETGID, uintptr(l.GID), 0, 0); errno != 0 {
			goto failed
		}
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETUID, uintptr(l.UID), 0, 0); errno != 0 {
			goto failed
		}
		// A new user makes the memory what fs.suid_dumpable says, and older kernels end all who share what is dumped.
		syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0)
	}
	afterForkInChild() // signals arrive from here on
	r.step = stepDirectory
	if _, _, errno = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(a.dir)), 0, 0); errno != 0 {
		goto failed
	}

	// As execvp: the first that there is, and that may be executed.
	r.step = stepProgram
	for i := range a.paths {
		path := uintptr(unsafe.Pointer(a.paths[i]))
		if i+1 < len(a.paths) { // much cheaper than to find it out by execve
			if _, _, errno = syscall.RawSyscall6(accessAt, atCwd, path, 0, 0, 0, 0); errno == syscall.ENOENT || errno == syscall.ENOTDIR {
				continue
			}
		}
		_, _, errno = syscall.RawSyscall(syscall.SYS_EXECVE, path, uintptr(unsafe.Pointer(&a.argv[0])), uintptr(unsafe.Pointer(&a.env[0])))
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
		path := uintptr(unsafe.Pointer(a.paths[refused]))
		if _, _, other := syscall.RawSyscall6(syscall.SYS_OPENAT, atCwd, path, kernel.PathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0, 0, 0); other == 0 {
			errno = syscall.EISDIR
		}
	}

failed:
	r.errno = int32(errno)
	if to < 0 {
		a.told = r
	} else {
		syscall.RawSyscall(syscall.SYS_WRITE, uintptr(to), uintptr(unsafe.Pointer(&r)), uintptr(reportSize))
	}
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 126, 0, 0)
	}
}
