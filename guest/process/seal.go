package process

import (
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Seal is for what a command is known by (see Tagger): a seccomp filter, which is inherited and cannot be taken off, lets whoever sets the
// limit RLIMIT_LOCKS believe that it was done. Nothing goes by that limit but this program, so nobody misses it. The filter needs
// no_new_privs, which the engine sets unless the sandbox is to have more, or CAP_SYS_ADMIN.
var Seal = sealing()

// Of prctl.
const (
	SetSeccomp    = 22 // PR_SET_SECCOMP
	SeccompFilter = 2  // SECCOMP_MODE_FILTER
)

// instruction is one of classic BPF.
type instruction struct {
	code          uint16
	ifTrue, ifNot uint8 // instructions to pass over
	k             uint32
}

// Program is a filter as the kernel takes it.
type Program struct {
	length uint16
	filter *instruction
}

func sealing() *Program {
	const (
		load = 0x20 // BPF_LD | BPF_W | BPF_ABS
		is   = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
		and  = 0x54 // BPF_ALU | BPF_AND | BPF_K
		give = 0x06 // BPF_RET | BPF_K

		// Where struct seccomp_data has what. Of an argument it is the lower half, on the machines below.
		number, architecture, argument = 0, 4, 16

		allow   = 0x7fff0000 // SECCOMP_RET_ALLOW
		pretend = 0x00050000 // SECCOMP_RET_ERRNO, with no error
	)
	var all []instruction
	// What a process can speak on the machines that this program is made for, and its numbers of the two calls.
	for _, speech := range []struct{ architecture, setrlimit, prlimit uint32 }{
		{0xc000003e, 160, 302}, // x86-64
		{0xc00000b7, 164, 261}, // arm64
		{0x40000003, 75, 340},  // i386
		{0x40000028, 75, 369},  // arm
	} {
		all = append(all, []instruction{
			{load, 0, 0, architecture},
			{is, 0, 15, speech.architecture}, // else to the next
			{load, 0, 0, number},
			{and, 0, 0, ^uint32(1 << 30)}, // of x32
			{is, 2, 0, speech.setrlimit},
			{is, 3, 0, speech.prlimit},
			{give, 0, 0, allow},
			{load, 0, 0, argument}, // setrlimit(resource, new)
			{is, 7, 6, LimitLocks},
			{load, 0, 0, argument + 8}, // prlimit64(pid, resource, new, old)
			{is, 0, 4, LimitLocks},
			{load, 0, 0, argument + 16},
			{is, 0, 3, 0},
			{load, 0, 0, argument + 20},
			{is, 0, 1, 0},
			{give, 0, 0, allow},
			{give, 0, 0, pretend},
		}...)
	}
	all = append(all, instruction{give, 0, 0, allow})
	return &Program{uint16(len(all)), &all[0]}
}

// CanSeal tells whether the kernel takes the filter from the children of this process.
func CanSeal() bool {
	const (
		getNoNewPrivs = 39
		sysAdmin      = 21
	)
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, SetSeccomp, SeccompFilter, 0) // none is there to be read
	unprivileged, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, getNoNewPrivs, 0, 0, 0, 0, 0)
	return errno == syscall.EFAULT && unsafe.Sizeof(*Seal) == 16 && (unprivileged == 1 || kernel.Capable(sysAdmin))
}
