package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/persist"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/server/meter"
	"github.com/agbox-dev/agbox/server/socket"
	"github.com/agbox-dev/agbox/server/spec"
)

// serve runs the daemon until ctx ends. Whatever was opened is closed in the reverse order: requests first, the
// database last.
func serve(ctx context.Context, start arguments, stdin io.Reader, stderr io.Writer) (err error) {
	paths, err := findPaths()
	if err != nil {
		return err
	}
	config, err := loadConfig(paths.config)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: config.Log.Level}))

	lock, err := lockHost(paths.lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()

	if err := os.MkdirAll(paths.data, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w: make that place writable, or set XDG_DATA_HOME to another", err)
	}
	witness, err := persist.ReadWitness(paths.witness)
	if err != nil {
		return err
	}
	measures := meter.New()
	open := func() (*dockerrt.Docker, error) {
		return openRuntime(ctx, paths, config, witness.Instance, measures, log)
	}
	seen := []persist.Option{persist.WithWitness(witness), persist.WithLog(log)}
	db, err := persist.Open(paths.database, seen...)
	if mismatch, lost := errors.AsType[*persist.Mismatch](err); lost {
		if err := start.settle(ctx, mismatch, open, stdin, stderr); err != nil {
			return err
		}
		db, err = persist.Open(paths.database, append(seen, persist.AcceptMismatch())...)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	runtime, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()

	settings := config.actors()
	settings.Adopt = start.adopt
	if start.forget {
		if err := start.confirm(ctx, runtime, knownTo(db), stdin, stderr); err != nil {
			return err
		}
		settings.Forget = &start.count
	}
	host := spec.Host{
		Places: runtime.Places(), ReadOnlyBelow: runtime.ReadOnlyBelow(),
		DefaultIdleTTL: config.Runtime.IdleTTL.Duration, AllowedCapabilities: config.Sandbox.AllowedCapabilities,
		Ceilings: config.Limits.ceilings(),
	}
	if settings.Pool, err = config.Pool.config(host, runtime.Disks(), uint64(config.Limits.DiskHeadroom)); err != nil {
		return fmt.Errorf("%s: %w", paths.config, err)
	}
	system, err := actors.Start(settings, db, runtime, log)
	if err != nil {
		return err
	}
	defer system.Shutdown(context.Background())

	listener, err := socket.Listen(paths.socket)
	if err != nil {
		return err
	}
	service := server.New(server.Config{Version: version, Meter: measures, Host: host, SnapshotTTL: config.Runtime.SnapshotTTL.Duration,
		DiskHeadroom: uint64(config.Limits.DiskHeadroom), MaxTransfer: uint64(config.Limits.MaxTransfer)}, system, db, runtime, log)
	stopped := context.AfterFunc(ctx, service.Shutdown)
	guarding, unguard := context.WithCancel(ctx)
	guarded := (&guard{paths, db, listener, lock, log}).watch(guarding)
	defer func() { unguard(); guarded() }()
	defer service.Shutdown()
	defer stopped()
	log.Info("agboxd is ready", "version", version, "socket", paths.socket, "data", paths.data)
	if err := service.Serve(listener); err != nil {
		return fmt.Errorf("cannot serve: %w", err)
	}
	log.Info("agboxd ends")
	return nil
}

func openRuntime(ctx context.Context, paths paths, config config, instance string, measures *meter.Meter, log *slog.Logger) (*dockerrt.Docker, error) {
	init, err := placeInit(paths.data)
	if err != nil {
		return nil, err
	}
	return dockerrt.New(ctx, dockerrt.Config{
		Host:     config.Docker.Host,
		Instance: instance,
		Measure:  measures.Engine,
		DataDir:  paths.data,
		InitPath: init,
		Places: hostpath.Places{
			Home: os.Getenv("HOME"), Getenv: os.Getenv,
			Own: []string{paths.data, filepath.Dir(paths.socket), filepath.Dir(paths.config)},
		},
		Pool: config.Network.Pool, SubnetBits: config.Network.Prefix, NameServers: config.Network.NameServers,
		ReadyNetworks:     config.Pool.Networks,
		CreateConcurrency: config.Runtime.CreateConcurrency,
		StopGrace:         config.Runtime.StopGrace.Duration,
		IsolationRequired: config.Isolation.Required,
		ExecTransport:     config.Runtime.ExecTransport,
		MaxOutput:         uint64(config.Limits.MaxOutput), DiskHeadroom: uint64(config.Limits.DiskHeadroom),
		MaxSnapshot: uint64(config.Limits.MaxSnapshot),
		PID:         os.Getpid(), Started: time.Now(),
		UID: os.Getuid(), GID: os.Getgid(),
	}, log)
}
