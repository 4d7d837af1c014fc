package sdk

import (
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// CreateOption changes one CreateSandbox.
type CreateOption interface{ create(*createCall) }

// ExecOption changes one CreateExec or Run.
type ExecOption interface{ exec(*execCall) }

// WaitOption changes how a call waits; it is also a CreateOption and an ExecOption.
type WaitOption func(*waiting)

type waiting struct {
	wait     bool
	progress func(Event)
}

type createCall struct {
	waiting
	id       string
	config   []byte
	snapshot string
}

type execCall struct {
	waiting
	id        string
	cwd       string
	user      string
	env       map[string]string
	maxOutput int64
	timeout   time.Duration
	maxLog    uint64
	stdin     bool
	terminal  *agboxv1.TerminalSize
}

func (o WaitOption) create(c *createCall) { o(&c.waiting) }
func (o WaitOption) exec(c *execCall)     { o(&c.waiting) }

type createOption func(*createCall)

func (o createOption) create(c *createCall) { o(c) }

type execOption func(*execCall)

func (o execOption) exec(c *execCall) { o(c) }

func waits(opts []WaitOption) waiting {
	w := waiting{wait: true}
	for _, opt := range opts {
		opt(&w)
	}
	return w
}

// WithWait says whether the call returns when its work is done, or as soon as it is accepted. Run
// always waits.
func WithWait(wait bool) WaitOption {
	return func(w *waiting) { w.wait = wait }
}

// WithProgress has f called for each event that comes by while the call waits, from the caller's
// goroutine.
func WithProgress(f func(Event)) WaitOption {
	return func(w *waiting) { w.progress = f }
}

// WithSandboxID names the sandbox: 4 to 200 of [a-zA-Z0-9_-], alphanumeric at both ends, never used
// before. Without it the daemon makes a UUID.
func WithSandboxID(id string) CreateOption {
	return createOption(func(c *createCall) { c.id = id })
}

// WithConfigYAML gives a spec in YAML with the keys of CreateSpec; what Spec sets overrides it.
func WithConfigYAML(yaml []byte) CreateOption {
	return createOption(func(c *createCall) { c.config = yaml })
}

// WithExecID names the exec, by the rules of WithSandboxID.
func WithExecID(id string) ExecOption {
	return execOption(func(c *execCall) { c.id = id })
}

// WithCwd sets the working directory; a relative or absent one starts at /workspace.
func WithCwd(dir string) ExecOption {
	return execOption(func(c *execCall) { c.cwd = dir })
}

// WithUser runs the command as this user of the sandbox: a name or a number, with an optional ":group". Without
// it, as the spec's User, else as the image's user agbox if there is one, else as the image's own.
func WithUser(user string) ExecOption {
	return execOption(func(c *execCall) { c.user = user })
}

// WithTimeout ends the command with all that it started after this long. A paused sandbox's clock stands still.
func WithTimeout(timeout time.Duration) ExecOption {
	return execOption(func(c *execCall) { c.timeout = timeout })
}

// WithMaxLog lets each of the command's log files grow to this many bytes. The command goes on beyond it.
func WithMaxLog(bytes uint64) ExecOption {
	return execOption(func(c *execCall) { c.maxLog = bytes })
}

// WithStdin keeps the command's standard input open for AttachExec, until CloseStdin; otherwise it is empty.
func WithStdin() ExecOption {
	return execOption(func(c *execCall) { c.stdin = true })
}

// WithTerminal gives the command a terminal of this size in characters, 1 to 65535 each, for input as well. What it
// writes, to stderr too, is in the stdout log.
func WithTerminal(rows, columns uint16) ExecOption {
	return execOption(func(c *execCall) {
		c.terminal = &agboxv1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}
	})
}

// WithEnv sets environment variables on top of the sandbox's own.
func WithEnv(env map[string]string) ExecOption {
	return execOption(func(c *execCall) { c.env = env })
}

// WithMaxOutput bounds the bytes that Run reads of stdout, and of stderr; 64 MiB each without it.
func WithMaxOutput(bytes int64) ExecOption {
	return execOption(func(c *execCall) { c.maxOutput = bytes })
}
