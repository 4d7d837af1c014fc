package chaos

import (
	"context"
	"errors"
	"fmt"

	dockerclient "github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// Stage is a daemon that does not run yet, the engine below it, a client of each, and what looks at both.
type Stage struct {
	Engine  *dockerclient.Client // itself, also where the daemon reaches it through a proxy
	Image   string               // has busybox
	Daemon  *Daemon
	SDK     *sdk.Client
	Checker *checker.Checker
}

// open connects to the engine, which is own or the environment's, and makes sure of the image. Close must follow, also after an error,
// here and after direct.
func (s *Stage) open(ctx context.Context, own *Engine) (err error) {
	if own != nil {
		s.Engine, err = own.Client()
	} else if s.Engine, err = dockertest.Connect(ctx); err != nil {
		err = fmt.Errorf("no Docker engine: %w; run make engine", err)
	}
	if err == nil {
		s.Image, err = dockertest.EnsureImage(ctx, s.Engine, dockertest.Busybox)
	}
	return err
}

// direct prepares the daemon, which reaches the engine at host.
func (s *Stage) direct(agboxd, dir, host string) (err error) {
	if s.Daemon, err = NewDaemon(agboxd, dir, host); err != nil {
		return err
	}
	if s.SDK, err = sdk.New(sdk.WithSocket(s.Daemon.Socket())); err != nil {
		return err
	}
	s.Checker = checker.New(checker.NewRecord(), s.SDK.Raw(), s.Engine, s.Daemon.Data())
	return nil
}

// NewStage prepares the daemon on the environment's engine, with everything below dir, whose path must be short.
func NewStage(ctx context.Context, agboxd, dir string) (*Stage, error) {
	s := new(Stage)
	err := s.open(ctx, nil)
	if err == nil {
		err = s.direct(agboxd, dir, s.Engine.DaemonHost())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the daemon and removes what it has on the engine.
func (s *Stage) Close() error {
	var errs []error
	if s.Daemon != nil {
		s.Daemon.End()
	}
	if s.Checker != nil {
		errs = append(errs, s.Checker.Sweep(context.Background()))
	}
	if s.SDK != nil {
		errs = append(errs, s.SDK.Close())
	}
	if s.Engine != nil {
		errs = append(errs, s.Engine.Close())
	}
	return errors.Join(errs...)
}
