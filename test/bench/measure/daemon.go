package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// daemon is one under measurement, on a directory of its own.
type daemon struct {
	*raw.Client
	path, dir string
	process   *exec.Cmd // nil while it does not run
	ended     chan error
	image     string
}

// answerWithin is how long a daemon has to answer after its start, and patience how long anything else may take.
const (
	answerWithin = 30 * time.Second
	patience     = 5 * time.Minute
)

// daemon starts one with this configuration. Its close must follow.
func (b *Bench) daemon(ctx context.Context, config string) (*daemon, error) {
	d, err := b.directory(config)
	if err != nil {
		return nil, err
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.answers(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// directory is a daemon that was not started yet.
func (b *Bench) directory(config string) (d *daemon, err error) {
	d = &daemon{path: b.path, image: b.image}
	if d.dir, err = os.MkdirTemp("", "agbox-bench"); err != nil {
		return nil, err
	}
	if d.Client, err = raw.Dial(raw.WithSocket(filepath.Join(d.dir, "agbox", "agboxd.sock"))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.dir))
	}
	if err = os.MkdirAll(filepath.Join(d.dir, "agents-sandbox"), 0o700); err == nil && config != "" {
		err = os.WriteFile(filepath.Join(d.dir, "agents-sandbox", "config.toml"), []byte(config), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *daemon) database() string { return filepath.Join(d.dir, "agents-sandbox", "ids.db") }
func (d *daemon) pid() int         { return d.process.Process.Pid }

func (d *daemon) start() error {
	process := exec.Command(d.path)
	process.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.dir, "XDG_DATA_HOME="+d.dir, "XDG_CONFIG_HOME="+d.dir)
	log, err := os.OpenFile(filepath.Join(d.dir, "agboxd.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process.Stderr = log
	if err := process.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w: run make build", d.path, err)
	}
	ended := make(chan error, 1)
	d.process, d.ended = process, ended
	go func() { ended <- process.Wait() }()
	return nil
}

// errEnded is a daemon that ended by itself.
var errEnded = errors.New("agboxd has ended")

// answers waits until the daemon does.
func (d *daemon) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		_, err := d.Ping(ctx, &agboxv1.PingRequest{})
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			err = errEnded
			d.process = nil
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
			continue
		}
		log, _ := os.ReadFile(filepath.Join(d.dir, "agboxd.log"))
		return fmt.Errorf("agboxd does not answer: %w\n%s", err, log)
	}
}

// kill ends the daemon as a crash would.
func (d *daemon) kill() error {
	err := d.process.Process.Kill()
	<-d.ended
	d.process = nil
	return err
}

// close deletes every sandbox, ends the daemon and removes its directory.
func (d *daemon) close() error {
	var errs []error
	if d.process != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		errs = append(errs, d.deleteAll(ctx), d.process.Process.Signal(syscall.SIGTERM), <-d.ended)
	}
	return errors.Join(append(errs, d.Client.Close(), os.RemoveAll(d.dir))...)
}

func (d *daemon) deleteAll(ctx context.Context) error {
	list, err := d.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{label: "1"}})
	if err != nil || len(list.Sandboxes) == 0 {
		return err
	}
	if _, err := d.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{label: "1"}}); err != nil {
		return err
	}
	for _, sandbox := range list.Sandboxes {
		if _, err := d.until(ctx, sandbox.SandboxId, 0, agboxv1.EventType_SANDBOX_DELETED); err != nil {
			return err
		}
	}
	return nil
}

// label is that of all that is created here.
const label = "agbox-bench"

// spec is the one that is measured unless something else is said.
func (d *daemon) spec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Image: d.image, Labels: map[string]string{label: "1"}}
}

// unconnected is a spec without a network, for what is not about those.
func (d *daemon) unconnected() *agboxv1.CreateSpec {
	spec := d.spec()
	spec.Network = &agboxv1.NetworkSpec{Mode: "none"}
	return spec
}

// create returns the id of a sandbox that is READY, and the sequence of that.
func (d *daemon) create(ctx context.Context, spec *agboxv1.CreateSpec) (id string, ready uint64, err error) {
	created, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: spec})
	if err != nil {
		return "", 0, err
	}
	id = created.Sandbox.SandboxId
	if created.Sandbox.State == agboxv1.SandboxState_SANDBOX_STATE_READY {
		return id, created.Sandbox.LastEventSequence, nil
	}
	ready, err = d.until(ctx, id, created.Sandbox.LastEventSequence, agboxv1.EventType_SANDBOX_READY)
	return id, ready, err
}

// until follows a sandbox's events after from until one of the given type, and returns its sequence.
func (d *daemon) until(ctx context.Context, id string, from uint64, kind agboxv1.EventType) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := d.follow(ctx, id, from)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	return told(stream, kind)
}

func (d *daemon) follow(ctx context.Context, id string, from uint64) (*raw.Stream, error) {
	return d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})
}

// told reads a stream up to the next event of the given type.
func told(stream *raw.Stream, kind agboxv1.EventType) (uint64, error) {
	for {
		event, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		if event.EventType == kind {
			return event.Sequence, nil
		}
		if event.EventType == agboxv1.EventType_SANDBOX_FAILED {
			return 0, fmt.Errorf("sandbox %s failed: %s", event.SandboxId, event.GetSandboxPhase().GetErrorMessage())
		}
	}
}

// understands tells whether a daemon starts with this configuration: an older one has no such key.
func (b *Bench) understands(ctx context.Context, config string) (bool, error) {
	if known, tried := b.knows[config]; tried {
		return known, nil
	}
	d, err := b.daemon(ctx, config)
	if err == nil {
		err = d.close()
	}
	if err == nil || errors.Is(err, errEnded) {
		b.knows[config] = err == nil
		return err == nil, nil
	}
	return false, err
}
