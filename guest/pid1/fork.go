package pid1

import (
	"runtime"
	"sync/atomic"
	"syscall"
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
	argv, env, paths []*byte
	dir              *byte
	to               int   // descriptor that the child reports to
	mine             []int // descriptors that are closed once the child has its own
	// pid is the child's, or less than zero for the errno for which there is none. The kernel sets it before the child runs.
	pid int32
}

// attempt gets l ready to be forked. What the child reports will come out of the descriptor, which does not block: a report, or, once the
// program runs or the child has died, the end.
func (l *launch) attempt(mine []int) (a *attempt, from int, err error) {
	a = &attempt{launch: l, mine: mine}
	if a.argv, err = syscall.SlicePtrFromStrings(l.argv); err != nil {
		return nil, -1, err
	}
	if a.env, err = syscall.SlicePtrFromStrings(l.env); err != nil {
		return nil, -1, err
	}
	if a.paths, err = syscall.SlicePtrFromStrings(l.paths); err != nil {
		return nil, -1, err
	}
	a.paths = a.paths[:len(l.paths)]
	if a.dir, err = syscall.BytePtrFromString(l.dir); err != nil {
		return nil, -1, err
	}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, -1, err
	}
	a.to = ends[1]
	return a, ends[0], nil
}

// run makes the process that becomes the command, in a session, and so a process group, of its own. The child goes to its directory and opens
// its program itself, and what lies in the sandbox can hold it up for as long as it likes (a lease, a file system that does not answer).
//
// A child that shares this process's memory until then takes a third of the time of one that gets a copy, and has the thread of the caller
// wait for it: that is for the forkers. Neither is a syscall.ForkExec, which waits with a lock that every other start needs.
func (a *attempt) run(shared bool) {
	var errno syscall.Errno
	if shared {
		errno = a.share()
	} else {
		errno = a.clone(uintptr(syscall.SIGCHLD) | parentSetTid)
		afterFork()
	}
	if errno != 0 {
		atomic.StoreInt32(&a.pid, -int32(errno))
		a.wake()
	}
	runtime.KeepAlive(a)
	syscall.Close(a.to)
	kernel.CloseAll(a.mine)
}

// share tells Go's runtime, as around each system call, that this thread will do nothing for it meanwhile.
//
//go:nosplit
//go:norace
func (a *attempt) share() syscall.Errno {
	enterSyscall()
	errno := a.clone(uintptr(syscall.SIGCHLD) | parentSetTid | shareMemory | untilExec)
	afterFork()
	exitSyscall()
	return errno
}

// await returns the child's pid as soon as there is one, for which nothing in the sandbox is needed.
func (a *attempt) await() (int, error) {
	for atomic.LoadInt32(&a.pid) == 0 {
		syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.pid)), futexWait, 0, 0, 0, 0)
	}
	if a.pid < 0 {
		return 0, syscall.Errno(-a.pid)
	}
	return int(a.pid), nil
}

//go:nosplit
func (a *attempt) wake() {
	syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&a.pid)), futexWake, 1)
}

// forkers is how many starts may share memory at a time, each with a thread that waits. More at once, and those beside one that is
// held up, get copies.
const forkers = 2

func fork(attempts <-chan *attempt) {
	for a := range attempts {
		a.run(true)
	}
}

// rawClone is the system call. With shareMemory it returns twice on one stack, for which it keeps its return address in a register.
//
//go:noescape
func rawClone(flags uintptr, pid *int32) (r1, errno uintptr)

//go:linkname enterSyscall runtime.entersyscall
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
// has no stack to grow; nor may it write what the parent reads, whose frame this one is too. After clone the parent calls afterFork.
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
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(to), uintptr(unsafe.Pointer(&r)), uintptr(reportSize))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 126, 0, 0)
	}
}
