package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Daemon is a real agboxd on directories of its own, one process after the other. Its methods may be called from any
// goroutine, but those that start a process from one only.
type Daemon struct {
	// Binary is the agboxd to run, Dir the directory below which everything of it lies; its path must be short,
	// for the sockets in it. Host is the engine's address, "" the environment's.
	Binary, Dir, Host string
	// Panics is the part of writes to the log around which a sandbox's actor panics.
	Panics float64

	mu      sync.Mutex
	process *process
	up      chan struct{} // closed while the daemon serves
}

// process is one life of the daemon.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed once it ended and err is set
	err     error
}

// NewDaemon makes the directories and the configuration, and starts nothing.
func NewDaemon(binary, dir, host string) (*Daemon, error) {
	d := &Daemon{Binary: binary, Dir: dir, Host: host, up: make(chan struct{})}
	config := filepath.Join(dir, "c", "agents-sandbox")
	for _, path := range []string{filepath.Join(dir, "r"), filepath.Join(dir, "d"), config} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	return d, d.configure("recent = 0")
}

// configure writes the configuration, with what stands about the pool in it.
func (d *Daemon) configure(warm string) error {
	text := fmt.Sprintf("[runtime]\nidle_ttl = \"0s\"\nstop_grace = \"2s\"\n[pool]\n%s\n[network]\npool = %q\n[log]\nlevel = \"debug\"\n", warm, pool(d.Dir))
	return os.WriteFile(filepath.Join(d.Dir, "c", "agents-sandbox", "config.toml"), []byte(text), 0o600)
}

// Warm has the daemon, once it starts, keep size sandboxes of the image ready, and one of the kind that was created last.
func (d *Daemon) Warm(image string, size int) error {
	return d.configure(fmt.Sprintf("recent = 1\n[[pool.warm]]\nimage = %q\nsize = %d", image, size))
}

// pool is a range for 64 networks that no other daemon of these tests is likely to have at the same time: one that
// finds its subnets taken asks the engine more often than another.
func pool(dir string) string {
	sum := fnv.New32a()
	sum.Write([]byte(dir))
	n := sum.Sum32() % (8 * 64)
	return fmt.Sprintf("10.%d.%d.0/22", 216+n/64, n%64*4)
}

// Socket, Data, Database and Log are where the daemon's things are.
func (d *Daemon) Socket() string   { return filepath.Join(d.Dir, "r", "agbox", "agboxd.sock") }
func (d *Daemon) Data() string     { return filepath.Join(d.Dir, "d", "agents-sandbox") }
func (d *Daemon) Database() string { return filepath.Join(d.Data(), "ids.db") }
func (d *Daemon) Log() string      { return filepath.Join(d.Dir, "agboxd.log") }

// Crashes counts the actors that have panicked so far, by the audit records in the log.
func (d *Daemon) Crashes() (int, error) {
	log, err := os.Open(d.Log())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	count := 0
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte(`"audit: actor crashed`)) {
			count++
		}
		if err == io.EOF {
			return count, nil
		} else if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return count, err
		}
	}
}

// Launch starts a process, with env beside its usual environment, and does not wait for it to be ready.
func (d *Daemon) Launch(env ...string) error {
	log, err := os.OpenFile(d.Log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	command := exec.Command(d.Binary)
	command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(d.Dir, "r"),
		"XDG_CONFIG_HOME="+filepath.Join(d.Dir, "c"), "XDG_DATA_HOME="+filepath.Join(d.Dir, "d"))
	if d.Host != "" {
		command.Env = append(command.Env, "DOCKER_HOST="+d.Host)
	}
	if d.Panics > 0 {
		command.Env = append(command.Env, fmt.Sprintf("AGBOX_PANIC_CHANCE=%g", d.Panics))
	}
	command.Env = append(command.Env, env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the driver's
	command.Stderr = &readyWatch{file: log, ready: d.serves}
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("cannot start %s: %w: run make build", d.Binary, err), log.Close())
	}
	p := &process{command: command, ended: make(chan struct{})}
	d.mu.Lock()
	d.process = p
	d.mu.Unlock()
	go func() {
		p.err = command.Wait()
		log.Close()
		close(p.ended)
	}()
	return nil
}

// readyWatch is the daemon's log; it calls ready at the record that says so.
type readyWatch struct {
	file  *os.File
	ready func()
	tail  []byte
}

var readyRecord = []byte(`"agboxd is ready"`)

func (w *readyWatch) Write(data []byte) (int, error) {
	if w.ready != nil {
		w.tail = append(w.tail, data...)
		if bytes.Contains(w.tail, readyRecord) {
			w.ready()
			w.ready, w.tail = nil, nil
		} else if keep := len(readyRecord); len(w.tail) > keep {
			w.tail = append([]byte(nil), w.tail[len(w.tail)-keep:]...)
		}
	}
	return w.file.Write(data)
}

func (d *Daemon) serves() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.up)
}

// down makes Up wait again.
func (d *Daemon) down() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.up:
		d.up = make(chan struct{})
	default:
	}
}

// current returns the newest process, nil before the first.
func (d *Daemon) current() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

// Up is closed while the daemon serves, as far as is known.
func (d *Daemon) Up() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.up
}

// Start is Launch and waits until the daemon is ready. It fails with ErrEnded when it ends first.
func (d *Daemon) Start(ctx context.Context, env ...string) error {
	if err := d.Launch(env...); err != nil {
		return err
	}
	return d.Ready(ctx)
}

// Ready waits until the launched daemon is ready. It fails with ErrEnded when it ends first.
func (d *Daemon) Ready(ctx context.Context) error {
	p := d.current()
	select {
	case <-d.Up():
		return nil
	case <-p.ended:
		return fmt.Errorf("%w: %v: its log is %s", ErrEnded, p.err, d.Log())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pid is the newest process's, 0 before the first.
func (d *Daemon) Pid() int {
	if p := d.current(); p != nil {
		return p.command.Process.Pid
	}
	return 0
}

// Ended is closed when the process has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.current().ended }

// Kill ends the process as kill -9 does and returns when it has ended. Nothing happens when it has already.
func (d *Daemon) Kill() {
	p := d.current()
	if p == nil {
		return
	}
	d.down()
	_ = p.command.Process.Kill()
	<-p.ended
	d.down()
}

// Stop ends the process with SIGTERM. It fails when it does not end before ctx does, and is killed then, or ends
// with another status than 0.
func (d *Daemon) Stop(ctx context.Context) error {
	p := d.current()
	if p == nil {
		return nil
	}
	d.down()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		d.Kill()
		return fmt.Errorf("%w: agboxd, after SIGTERM", ErrNotKilled)
	}
}

// partingTime bounds how long End waits.
const partingTime = time.Minute

// End is Stop for who is done with the daemon: one that is killed while it makes something leaves that behind, once whoever looks for
// it has looked. How it ends does not matter.
func (d *Daemon) End() {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	if d.Stop(ctx) != nil {
		d.Kill() // which only notes that it has ended
	}
}

// startTime bounds how long a daemon takes until it is ready.
const startTime = 2 * time.Minute
