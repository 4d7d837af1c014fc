package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// bench is a daemon under measurement and the engine below it.
type bench struct {
	engine *client.Client
	agboxd *raw.Client
	image  string
	dir    string
	path   string // of the daemon's binary
	daemon *exec.Cmd
}

func newBench(ctx context.Context, daemon string) (_ *bench, err error) {
	b := &bench{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.engine, err = dockertest.Connect(ctx); err != nil {
		return nil, err
	}
	if b.image, err = dockertest.EnsureImage(ctx, b.engine, dockertest.Busybox); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "agbox-bench"); err != nil {
		return nil, err
	}
	b.path = daemon
	if err := b.start(); err != nil {
		return nil, err
	}
	if b.agboxd, err = raw.Dial(raw.WithSocket(filepath.Join(b.dir, "agbox", "agboxd.sock"))); err != nil {
		return nil, err
	}
	return b, b.ready(ctx)
}

func (b *bench) start() error {
	b.daemon = exec.Command(b.path)
	b.daemon.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir, "XDG_DATA_HOME="+b.dir, "XDG_CONFIG_HOME="+b.dir)
	log, err := os.OpenFile(filepath.Join(b.dir, "agboxd.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	b.daemon.Stderr = log
	if err := b.daemon.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w: run make build", b.path, err)
	}
	return nil
}

func (b *bench) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		_, err := b.agboxd.Ping(ctx, &agboxv1.PingRequest{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(b.dir, "agboxd.log"))
			return fmt.Errorf("agboxd does not answer: %w\n%s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bench) close() error {
	var errs []error
	if b.agboxd != nil {
		errs = append(errs, b.agboxd.Close())
	}
	if b.daemon != nil && b.daemon.Process != nil {
		errs = append(errs, b.daemon.Process.Signal(syscall.SIGTERM), b.daemon.Wait())
	}
	if b.engine != nil {
		errs = append(errs, b.engine.Close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// until follows a sandbox's events after from until one of the given type, and returns its sequence.
func (b *bench) until(ctx context.Context, sandboxID string, from uint64, kind agboxv1.EventType) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := b.agboxd.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: sandboxID, FromSequence: from})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	for {
		event, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		if event.EventType == kind {
			return event.Sequence, nil
		}
		if event.EventType == agboxv1.EventType_SANDBOX_FAILED {
			return 0, fmt.Errorf("sandbox %s failed: %s", sandboxID, event.GetSandboxPhase().GetErrorMessage())
		}
	}
}
