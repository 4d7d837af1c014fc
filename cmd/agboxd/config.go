package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/client"
	"github.com/pelletier/go-toml/v2"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/dockerrt/host"
	"github.com/agbox-dev/agbox/server/spec"
)

// config is what a person can set in config.toml; docs/config.md describes each key.
type config struct {
	Runtime struct {
		IdleTTL           duration              `toml:"idle_ttl"`
		CleanupTTL        duration              `toml:"cleanup_ttl"`
		EventRetentionTTL duration              `toml:"event_retention_ttl"`
		SnapshotTTL       duration              `toml:"snapshot_ttl"`
		MaxEvents         uint64                `toml:"max_events"`
		CreateConcurrency int                   `toml:"create_concurrency"`
		OwnerLabel        string                `toml:"owner_label"`
		StopGrace         duration              `toml:"stop_grace"`
		OnShutdown        actors.ShutdownPolicy `toml:"on_shutdown"`
		ExecTransport     host.ExecTransport    `toml:"exec_transport"`
	} `toml:"runtime"`
	Network struct {
		Pool        netip.Prefix `toml:"pool"`
		Prefix      int          `toml:"prefix"`
		NameServers []netip.Addr `toml:"name_servers"`
	} `toml:"network"`
	Docker struct {
		Host string `toml:"host"`
	} `toml:"docker"`
	Isolation struct {
		Required bool `toml:"required"`
	} `toml:"isolation"`
	Sandbox struct {
		AllowedCapabilities []string `toml:"allowed_capabilities"`
	} `toml:"sandbox"`
	Limits limits `toml:"limits"`
	Pool   ahead  `toml:"pool"`
	// Gateway is for agbox gateway, which reads it itself.
	Gateway any `toml:"gateway"`
	Log     struct {
		Level slog.Level `toml:"level"`
	} `toml:"log"`
}

// duration reads Go's notation: "90s", "1h30m".
type duration struct{ time.Duration }

func (d *duration) UnmarshalText(text []byte) error {
	var err error
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// maxReadyNetworks is as many as an engine has trouble with.
const maxReadyNetworks = 200

func defaults() config {
	var c config
	c.Runtime.IdleTTL.Duration = 30 * time.Minute
	c.Runtime.EventRetentionTTL.Duration = 7 * 24 * time.Hour
	c.Runtime.MaxEvents = 100_000
	c.Runtime.OnShutdown = actors.KeepSandboxes
	c.Runtime.ExecTransport = host.TransportAuto
	// An engine makes the most sandboxes in a second with about as many at once as it has processors, and one more; beyond that
	// each only takes longer.
	c.Runtime.CreateConcurrency = goruntime.NumCPU() + 1
	c.Runtime.OwnerLabel = "owner"
	c.Runtime.StopGrace.Duration = 5 * time.Second
	c.Limits.MaxOutput, c.Limits.DiskHeadroom = 1<<30, 256<<20
	c.Limits.MaxTransfer, c.Limits.MaxSnapshot = 64<<30, 4<<30
	c.Pool.Recent = 1
	c.Network.Pool = netip.MustParsePrefix("10.213.0.0/16")
	c.Network.Prefix = 28
	c.Pool.Networks = 4
	return c
}

// loadConfig reads the file at path over the defaults; a missing file is no error, an unknown key is.
func loadConfig(path string) (config, error) {
	c := defaults()
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return c, fmt.Errorf("cannot read the configuration: %w", err)
	}
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, configError(path, err)
	}
	if err := c.check(); err != nil {
		if line := lineOf(text, err.Error()); line > 0 {
			return c, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func configError(path string, err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		first := strict.Errors[0]
		line, _ := first.Position()
		return fmt.Errorf("%s:%d: unknown key %q: see docs/config.md for those there are", path, line, dotted(first.Key()))
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := decode.Position()
		problem := strings.TrimPrefix(decode.Error(), "toml: ")
		if key := dotted(decode.Key()); key != "" {
			problem = key + ": " + problem
		}
		return fmt.Errorf("%s:%d: %s", path, line, problem)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func dotted(key toml.Key) string {
	text := ""
	for i, part := range key {
		if i > 0 {
			text += "."
		}
		text += part
	}
	return text
}

func (c config) check() error {
	for _, name := range c.Sandbox.AllowedCapabilities {
		if !spec.KnownCapability(name) {
			return fmt.Errorf("sandbox.allowed_capabilities: there is no capability %q; write one of Linux's names, such as SYS_PTRACE", name)
		}
	}
	if c.Docker.Host != "" {
		if _, err := client.ParseHostURL(c.Docker.Host); err != nil {
			return fmt.Errorf("docker.host must be the address of an engine, such as \"unix:///var/run/docker.sock\", not %q", c.Docker.Host)
		}
	}
	switch {
	case !c.Runtime.OnShutdown.Valid():
		return fmt.Errorf("runtime.on_shutdown: %q is not one of keep, stop, delete", c.Runtime.OnShutdown)
	case !c.Runtime.ExecTransport.Valid():
		return fmt.Errorf("runtime.exec_transport: %q is not one of auto, socket, engine", c.Runtime.ExecTransport)
	case c.Runtime.IdleTTL.Duration < 0:
		return errors.New("runtime.idle_ttl must not be negative; 0 is never")
	case c.Runtime.CleanupTTL.Duration < 0:
		return errors.New("runtime.cleanup_ttl must not be negative; 0 is never")
	case c.Runtime.EventRetentionTTL.Duration < 0:
		return errors.New("runtime.event_retention_ttl must not be negative; 0 is never")
	case c.Runtime.SnapshotTTL.Duration < 0:
		return errors.New("runtime.snapshot_ttl must not be negative; 0 is never")
	case c.Runtime.MaxEvents > 0 && c.Runtime.MaxEvents < 100:
		return errors.New("runtime.max_events must be 0, for all, or at least 100")
	case c.Runtime.StopGrace.Duration < 0:
		return errors.New("runtime.stop_grace must not be negative")
	case c.Pool.Networks < 0 || c.Pool.Networks > maxReadyNetworks:
		return fmt.Errorf("pool.networks must lie between 0 and %d", maxReadyNetworks)
	case c.Runtime.CreateConcurrency < 1:
		return errors.New("runtime.create_concurrency must be at least 1")
	case c.Pool.problem() != "":
		return errors.New(c.Pool.problem())
	case c.Limits.problem() != "":
		return errors.New(c.Limits.problem())
	case !c.Network.Pool.IsValid() || !c.Network.Pool.Addr().Is4():
		return errors.New("network.pool must be an IPv4 range such as \"10.213.0.0/16\"")
	case slices.ContainsFunc(c.Network.NameServers, func(a netip.Addr) bool { return !a.Is4() || a.IsLoopback() }):
		return errors.New("network.name_servers must be IPv4 addresses that sandboxes can reach, such as [\"9.9.9.9\"]: none of IPv6, none on a loopback")
	case c.Network.Prefix < c.Network.Pool.Bits() || c.Network.Prefix > 29:
		return fmt.Errorf("network.prefix must lie between the %d of network.pool itself and 29", c.Network.Pool.Bits())
	}
	return nil
}

func (c config) actors() actors.Config {
	return actors.Config{
		IdleTTL:           c.Runtime.IdleTTL.Duration,
		CleanupTTL:        c.Runtime.CleanupTTL.Duration,
		EventRetentionTTL: c.Runtime.EventRetentionTTL.Duration,
		MaxEvents:         c.Runtime.MaxEvents,
		OnShutdown:        c.Runtime.OnShutdown,
		OwnerLabel:        c.Runtime.OwnerLabel,
		MaxSandboxes:      c.Limits.MaxSandboxes,
	}
}
