package protocol

import "time"

// CommandID is the id of the sandbox's main command, which Boot starts. It is reserved: an exec's id
// begins with a letter or digit. From Boot on the command is told of in Hello, cancelled, and its
// result repeated and acknowledged like that of any exec. An Exec with this id attaches; it never
// starts anything, its other fields are not looked at, and it needs no descriptors. Init answers it
// with CodeStartFailed when it knows no such command: before Boot, or when there is none.
const CommandID = "_primary"

// InsidePrefix begins the ids of commands that the runtime runs for itself: they are init's own program, found by no path,
// whose first argument they give for form only. No exec has one, and nobody comes back for the
// result of one that was given up.
const InsidePrefix = "_file-"

// Version is the protocol version that this code speaks; Hello carries it.
const Version = 1

// Type tells messages apart on the wire.
type Type byte

const (
	TypeHello Type = 1 + iota
	TypeBoot
	TypeBooted
	TypeExec
	TypeStarted
	TypeCancel
	TypeResult
	TypeAck
	TypeStop
	TypeSignal
	TypeSignalled
	TypeFreeze
	TypeFrozen
	TypeThaw
	TypeCloseStdin
	TypeResize
	TypeDial
	TypeDialed
)

// Message is one of the message types of this package; nothing else implements it.
type Message interface {
	Type() Type
	put(*encoder)
	set(field) bool
}

// Hello is the first frame of a connection, from init.
type Hello struct {
	Version     int
	InitVersion string
	// Booted: Boot was received before, in this life of init. Status tells what came of it.
	Booted bool
	Status BootStatus
	// Execs are the commands that are running, or ended and not acknowledged. The results of the
	// latter follow as Result frames.
	Execs []KnownExec
	// Frozen: a Freeze was heard, and no Thaw since.
	Frozen bool
}

// KnownExec is an exec that init knows.
type KnownExec struct {
	ID string
	// PID is the leader's, in the sandbox's own numbering; 0 once it has ended.
	PID int
}

// Boot hands over the primary log; descriptors: stdout, stderr, and the main command's record, which
// is needed only when there is one. The image's entrypoint or, without one, the main command starts now.
type Boot struct {
	// As is what a sandbox that was made ahead becomes, nil for any other. Its image has no entrypoint.
	As *Identity
}

// Booted tells that the image's entrypoint is done with its preparations, or that the main command
// was started without one.
type Booted struct{ Status BootStatus }

// BootState is what became of the image's entrypoint, or of the main command's start without one.
type BootState int

const (
	// BootPending: the entrypoint runs and has not handed over; also the state before Boot.
	BootPending BootState = iota
	// BootNone: there is neither an entrypoint nor a main command.
	BootNone
	// BootHandedOver: the entrypoint ran what it was given, or the main command was started without one.
	BootHandedOver
	// BootExited: the entrypoint ended before it handed over, or the first program, entrypoint or
	// command, could not be started (126, 127). A main command has a Result as well.
	BootExited
)

// BootStatus is what Booted tells; exit code and signal are set with BootExited only.
type BootStatus struct {
	State    BootState
	ExitCode int
	Signal   int
}

// Exec starts a command, or attaches to it when init knows the id. Descriptors: those of Roles.
type Exec struct {
	ID   string
	Argv []string
	// Env holds "K=V" entries that go on top of init's own environment.
	Env []string
	// Cwd is relative to the sandbox's working directory, which is also meant by "".
	Cwd string
	// User is name or number, optionally ":group"; "" means the sandbox's own user or rule.
	User string
	// Timeout 0 means none. Grace is the time between TERM and KILL when the timeout strikes.
	// Both travel in milliseconds, rounded up.
	Timeout, Grace time.Duration
	// MaxOutput is how many bytes of each of stdout and stderr are written to its file, also by
	// processes that outlive the command; 0 means no limit. What comes after that is read and dropped.
	MaxOutput uint64
	// Roles tell what each descriptor is for, in their order: RoleStdout, RoleStderr and RoleRecord at least. The
	// descriptor of a role that init does not know is closed.
	Roles []string
	// Terminal: the command has one, of that size; what it writes to it goes to stdout.
	Terminal *Size
	// FromHome: Cwd is relative to the user's home.
	FromHome bool
}

// Roles of the descriptors of Exec.
const (
	RoleStdout = "stdout"
	RoleStderr = "stderr"
	RoleRecord = "record"
	// RoleStdin is the read end of the command's input, a blocking one, which init does not keep; RoleStdinKeeper is a
	// write end that it does keep, until CloseStdin or the end of the command, so that the input does not end when the daemon dies.
	RoleStdin       = "stdin"
	RoleStdinKeeper = "stdin-keeper"
	// RoleIndex is the file for the index of the command's output, which AppendRun tells of. It is not for a command with a
	// terminal, which has one stream.
	RoleIndex = "index"
)

// Started tells that a command runs, as the answer to each Exec of a running id.
type Started struct {
	ID  string
	PID int
}

// Cancel ends a running command with all of its processes: TERM, after Grace KILL.
type Cancel struct {
	ID    string
	Grace time.Duration
}

// Ack tells init that the result of an exec is durable with the daemon.
type Ack struct{ ID string }

// Stop ends everything in the sandbox, init last.
type Stop struct{ Grace time.Duration }

// Unknown is a message of a type that this version does not know. Its descriptors, if any, still
// belong to whoever received it.
type Unknown struct{ Kind Type }

func (*Hello) Type() Type     { return TypeHello }
func (*Boot) Type() Type      { return TypeBoot }
func (*Booted) Type() Type    { return TypeBooted }
func (*Exec) Type() Type      { return TypeExec }
func (*Started) Type() Type   { return TypeStarted }
func (*Cancel) Type() Type    { return TypeCancel }
func (*Result) Type() Type    { return TypeResult }
func (*Ack) Type() Type       { return TypeAck }
func (*Stop) Type() Type      { return TypeStop }
func (*Signal) Type() Type    { return TypeSignal }
func (*Signalled) Type() Type { return TypeSignalled }
func (*Freeze) Type() Type    { return TypeFreeze }
func (*Frozen) Type() Type    { return TypeFrozen }
func (*Thaw) Type() Type      { return TypeThaw }
func (m *Unknown) Type() Type { return m.Kind }

func (*CloseStdin) Type() Type { return TypeCloseStdin }
func (*Resize) Type() Type     { return TypeResize }

func newMessage(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeBoot:
		return new(Boot)
	case TypeBooted:
		return new(Booted)
	case TypeExec:
		return new(Exec)
	case TypeStarted:
		return new(Started)
	case TypeCancel:
		return new(Cancel)
	case TypeResult:
		return new(Result)
	case TypeAck:
		return new(Ack)
	case TypeStop:
		return new(Stop)
	case TypeSignal:
		return new(Signal)
	case TypeSignalled:
		return new(Signalled)
	case TypeFreeze:
		return new(Freeze)
	case TypeFrozen:
		return new(Frozen)
	case TypeThaw:
		return new(Thaw)
	case TypeCloseStdin:
		return new(CloseStdin)
	case TypeResize:
		return new(Resize)
	case TypeDial:
		return new(Dial)
	case TypeDialed:
		return new(Dialed)
	}
	return newRelayMessage(t)
}

func (m *Hello) put(e *encoder) {
	e.int(1, int64(m.Version))
	e.str(2, m.InitVersion)
	e.bool(3, m.Booted)
	e.nested(4, &m.Status)
	for i := range m.Execs {
		e.nested(5, &m.Execs[i])
	}
	e.bool(6, m.Frozen)
}

func (m *Hello) set(f field) bool {
	switch f.tag {
	case 1:
		return setInt(f, &m.Version)
	case 2:
		return f.str(&m.InitVersion)
	case 3:
		return f.bool(&m.Booted)
	case 4:
		return f.nested(&m.Status)
	case 5:
		m.Execs = append(m.Execs, KnownExec{})
		return f.nested(&m.Execs[len(m.Execs)-1])
	case 6:
		return f.bool(&m.Frozen)
	}
	return true
}

func (m *KnownExec) put(e *encoder) {
	e.str(1, m.ID)
	e.int(2, int64(m.PID))
}

func (m *KnownExec) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return setInt(f, &m.PID)
	}
	return true
}

func (m *Booted) put(e *encoder) { e.nested(1, &m.Status) }

func (m *Booted) set(f field) bool {
	if f.tag == 1 {
		return f.nested(&m.Status)
	}
	return true
}

func (m *BootStatus) put(e *encoder) {
	e.int(1, int64(m.State))
	e.int(2, int64(m.ExitCode))
	e.int(3, int64(m.Signal))
}

func (m *BootStatus) set(f field) bool {
	switch f.tag {
	case 1:
		return setInt(f, &m.State)
	case 2:
		return setInt(f, &m.ExitCode)
	case 3:
		return setInt(f, &m.Signal)
	}
	return true
}

func (m *Exec) put(e *encoder) {
	e.str(1, m.ID)
	e.strs(2, m.Argv)
	e.strs(3, m.Env)
	e.str(4, m.Cwd)
	e.str(5, m.User)
	e.millis(6, m.Timeout)
	e.millis(7, m.Grace)
	e.uint(8, m.MaxOutput)
	e.strs(9, m.Roles)
	if m.Terminal != nil {
		e.nested(10, m.Terminal)
	}
	e.bool(11, m.FromHome)
}

func (m *Exec) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return f.strs(&m.Argv)
	case 3:
		return f.strs(&m.Env)
	case 4:
		return f.str(&m.Cwd)
	case 5:
		return f.str(&m.User)
	case 6:
		return f.millis(&m.Timeout)
	case 7:
		return f.millis(&m.Grace)
	case 8:
		return f.uint(&m.MaxOutput)
	case 9:
		return f.strs(&m.Roles)
	case 10:
		m.Terminal = new(Size)
		return f.nested(m.Terminal)
	case 11:
		return f.bool(&m.FromHome)
	}
	return true
}

func (m *Started) put(e *encoder) {
	e.str(1, m.ID)
	e.int(2, int64(m.PID))
}

func (m *Started) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return setInt(f, &m.PID)
	}
	return true
}

func (m *Cancel) put(e *encoder) {
	e.str(1, m.ID)
	e.millis(2, m.Grace)
}

func (m *Cancel) set(f field) bool {
	switch f.tag {
	case 1:
		return f.str(&m.ID)
	case 2:
		return f.millis(&m.Grace)
	}
	return true
}

func (m *Ack) put(e *encoder) { e.str(1, m.ID) }

func (m *Ack) set(f field) bool {
	if f.tag == 1 {
		return f.str(&m.ID)
	}
	return true
}

func (m *Stop) put(e *encoder) { e.millis(1, m.Grace) }

func (m *Stop) set(f field) bool {
	if f.tag == 1 {
		return f.millis(&m.Grace)
	}
	return true
}

func (*Unknown) put(*encoder)   {}
func (*Unknown) set(field) bool { return true }
