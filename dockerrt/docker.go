package dockerrt

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/archive"
	"github.com/agbox-dev/agbox/dockerrt/container"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/execs"
	"github.com/agbox-dev/agbox/dockerrt/host"
	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	"github.com/agbox-dev/agbox/dockerrt/network"
	"github.com/agbox-dev/agbox/dockerrt/observe"
	"github.com/agbox-dev/agbox/dockerrt/queue"
	"github.com/agbox-dev/agbox/dockerrt/service"
	"github.com/agbox-dev/agbox/dockerrt/snapshot"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/hosttree/layer"
	"github.com/agbox-dev/agbox/oplog"
)

// Config is what the daemon decides about its runtime.
type Config struct {
	// Host is the engine's address; "" takes it from the environment, as Docker's own tools do.
	Host string
	// Instance names the owner of every object that is made: one data directory, for ever.
	Instance string
	// DataDir holds logs, results and sockets.
	DataDir string
	// InitPath is the agbox-init binary on the host.
	InitPath string
	// Pool is the range that sandbox networks take their subnets from, SubnetBits their prefix length.
	Pool       netip.Prefix
	SubnetBits int
	// NameServers are those of sandboxes in mode internet, of IPv4 and not on a loopback; none: this host's.
	NameServers []netip.Addr
	// ReadyNetworks is how many networks are kept ready once a sandbox has needed one.
	ReadyNetworks int
	// CreateConcurrency is how many sandboxes are made, started or removed at once; others wait in the order of their turns.
	CreateConcurrency int
	// StopGrace is how long processes have from TERM to KILL when their sandbox is stopped or their exec
	// cancelled.
	StopGrace time.Duration
	// LinkPatience is how long an agbox-init for which something waits may be silent before that is told, and then again
	// before its sandbox counts as failed; 0 is 10 s.
	LinkPatience time.Duration
	// PID and Started tell this process from earlier ones with the same instance.
	PID     int
	Started time.Time
	// IsolationRequired refuses to work where sandboxes cannot be kept from the host.
	IsolationRequired bool
	// ExecTransport is how commands get into sandboxes that are made from now on; "" is host.TransportAuto.
	ExecTransport host.ExecTransport
	// MaxOutput bounds the output of a sandbox's own command in each of its lives, and that of a hook: bytes of each of
	// stdout and stderr, 0 for no limit. No output of any command takes the last DiskHeadroom bytes of the disk.
	MaxOutput, DiskHeadroom uint64
	// MaxSnapshot bounds what a sandbox has beyond its image for a snapshot to be made, in bytes, 0 for no limit. Holes in
	// files count: an engine fills them.
	MaxSnapshot uint64
	// Measure, unless nil, wraps the way to the engine.
	Measure func(http.RoundTripper) http.RoundTripper
	// UID and GID are what the sandbox sees as HOST_UID and HOST_GID.
	UID, GID int
	// Places are what of this host no sandbox may have, beside DataDir and what is the engine's.
	Places hostpath.Places
}

// Docker is the runtime on one engine. Use New.
type Docker struct {
	*archive.Files
	*host.Host
	*execs.Execs
	*container.Containers
	*service.Services
	*observe.Observer
	config    Config
	api       *engine.Client
	log       *slog.Logger
	layout    layout.Layout
	networks  *network.Networks
	mounts    *mount.Mounts
	snapshots *snapshot.Store
	images    *image.Store
	names     *image.Names
	links     *links.Links
	oplogs    *oplog.Logs
	queue     *queue.Queue
	noQuiet   func()
	taking    sync.WaitGroup // what goes on after Occupy
	relays    bool           // what is made is for host.TransportEngine
}

var _ interface {
	runtime.Runtime
	runtime.Host
	runtime.Snapshots
	runtime.Input
	runtime.Ports
} = (*Docker)(nil)

// New connects to the engine, negotiates the API version (20.10 and newer are served) and learns which subnets
// are taken. It fails with runtime.ErrUnreachable when no engine answers, saying what to do. Close it after use.
func New(ctx context.Context, config Config, log *slog.Logger) (*Docker, error) {
	api, err := engine.Connect(ctx, config.Host, engine.Owner{Instance: config.Instance, PID: config.PID, Started: config.Started})
	if err != nil {
		return nil, err
	}
	if config.Measure != nil {
		if err := api.Measure(config.Measure); err != nil {
			return nil, errors.Join(err, api.Close())
		}
	}
	d := &Docker{
		config: config, api: api, log: log, layout: layout.Layout{Root: filepath.Clean(config.DataDir)},
		queue:  queue.New(config.CreateConcurrency),
		images: image.New(api.Client, "", log), names: image.NewNames(api.Client, log),
	}
	d.oplogs = oplog.New(d.layout.Oplogs(), log)
	d.links = links.New(api, links.Config{Layout: d.layout, InitPath: config.InitPath, Patience: config.LinkPatience, DiskHeadroom: config.DiskHeadroom}, d.oplogs, log)
	d.Execs = execs.New(d.links, d.layout, config.StopGrace, log)
	if err := d.connect(ctx); err != nil {
		d.images.Close()
		return nil, errors.Join(err, api.Close())
	}
	d.noQuiet = d.queue.WhenQuiet(quietAfter, debug.FreeOSMemory)
	return d, nil
}

// quietAfter is how long after the last work for sandboxes their memory goes back to the host: the making of many takes more than they need
// then, and a daemon that does nothing collects none of it for minutes.
const quietAfter = 5 * time.Second

func (d *Docker) connect(ctx context.Context) error {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	facts, err := host.Ask(ctx, d.api, d.config.ExecTransport, d.log)
	if err != nil {
		return err
	}
	d.relays = facts.Relays
	tenants, err := d.layout.Tenants()
	if err != nil {
		return err
	}
	for place, sandboxID := range tenants { // also of those that the database has lost
		d.api.Reserve(sandboxID, place)
	}
	for _, dir := range []string{d.layout.Oplogs(), filepath.Join(d.layout.Root, mount.Layers)} {
		if err := layout.MakeParent(dir); err != nil {
			return err
		}
	}
	guest, err := d.layout.PlaceGuest(d.config.InitPath)
	if err != nil {
		return err
	}
	d.mounts = mount.New(d.api, mount.Config{DataDir: d.layout.Root, InitPath: d.config.InitPath, Init: layout.InitTarget, Places: d.config.Places,
		EngineRoot: facts.Root, Elsewhere: facts.Elsewhere, ReadOnlyBelow: facts.ReadOnlyBelow})
	d.Files = archive.New(d.api, archive.Config{DataDir: d.layout.Root, InitPath: d.config.InitPath, Init: layout.InitTarget, Places: d.mounts.Places,
		SpecFile: d.layout.SpecFile,
		Booted: func(sandboxID string) (*link.Link, error) {
			l, err := d.links.Booted(sandboxID)
			if err != nil {
				return nil, err
			}
			return l.Link, nil
		}}, d.log)
	d.networks, err = network.Open(ctx, d.api, d.queue, network.Config{Ready: d.config.ReadyNetworks, Dir: d.layout.Networks(),
		Pool: d.config.Pool, SubnetBits: d.config.SubnetBits,
		NameServers: d.config.NameServers, Required: d.config.IsolationRequired}, d.log)
	if err != nil {
		return err
	}
	d.Host = host.New(d.api, facts, d.layout.Root, d.networks, d.mounts, d.queue)
	d.Containers = container.New(container.Rooms{Engine: d.api, Networks: d.networks, Mounts: d.mounts, Files: d.Files, Links: d.links, Oplogs: d.oplogs},
		container.Config{Layout: d.layout, Guest: guest, StopGrace: d.config.StopGrace, MaxOutput: d.config.MaxOutput, DiskHeadroom: d.config.DiskHeadroom,
			UID: d.config.UID, GID: d.config.GID}, d.log)
	d.Services = service.New(service.Rooms{Engine: d.api, Images: d.images, Networks: d.networks, Links: d.links, Oplogs: d.oplogs},
		d.layout, d.queue, d.config.StopGrace)
	d.snapshots = snapshot.New(d.api, snapshot.Config{Dir: d.layout.Snapshots(), MaxSize: d.config.MaxSnapshot, DiskHeadroom: d.config.DiskHeadroom,
		EngineRoot: facts.Root, Freeze: d.Freeze, Thaw: d.ThawClocks}, d.log)
	d.Observer = observe.New(observe.Rooms{Engine: d.api, Containers: d.Containers, Networks: d.networks, Mounts: d.mounts, Snapshots: d.snapshots,
		Links: d.links, Execs: d.Execs, Oplogs: d.oplogs, Names: d.names}, d.layout, d.config.LinkPatience, d.log)
	return nil
}

// OperationLog returns the host paths of the sandbox's operation log; see oplog.Logs.Paths.
func (d *Docker) OperationLog(sandboxID string) (older, newer string) {
	return d.oplogs.Paths(sandboxID)
}

// Changes tells every change in a copy-on-write mount, whose index in the sandbox's spec and source these are; see layer.Walk.
func (d *Docker) Changes(ctx context.Context, sandboxID string, index int, source string, visit func(*layer.Change) error) error {
	return d.mounts.Changes(ctx, sandboxID, index, source, visit)
}

// ChangesTar writes what was added and changed in a copy-on-write mount; see layer.Tar.
func (d *Docker) ChangesTar(ctx context.Context, sandboxID string, index int, source string, to io.Writer) error {
	return d.mounts.ChangesTar(ctx, sandboxID, index, source, to)
}

// SnapshotImage implements runtime.Snapshots.
func (d *Docker) SnapshotImage(snapshotID string) string { return d.snapshots.Image(snapshotID) }

// CreateSnapshot implements runtime.Snapshots.
func (d *Docker) CreateSnapshot(ctx context.Context, want runtime.Snapshot) (runtime.Snapshot, error) {
	return d.snapshots.Create(ctx, want)
}

// Snapshots implements runtime.Snapshots.
func (d *Docker) Snapshots(ctx context.Context) ([]runtime.Snapshot, error) {
	return d.snapshots.List(ctx)
}

// Snapshot implements runtime.Snapshots.
func (d *Docker) Snapshot(ctx context.Context, snapshotID string) (runtime.Snapshot, error) {
	return d.snapshots.Get(ctx, snapshotID)
}

// DeleteSnapshot implements runtime.Snapshots.
func (d *Docker) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return d.snapshots.Delete(ctx, snapshotID)
}

// Close lets go of every sandbox's link and of the engine. Sandboxes go on, and so do the packet rules as long as
// there are any.
func (d *Docker) Close() error {
	d.noQuiet()
	d.networks.Drain()
	d.api.Abort()
	d.snapshots.Close()
	d.images.Close()
	d.names.Close()
	d.links.Close()
	d.taking.Wait()
	return errors.Join(d.networks.Close(), d.api.Close())
}

// Dial connects to a port of a sandbox, as runtime.Ports says.
func (d *Docker) Dial(ctx context.Context, sandboxID string, port uint16) (runtime.Connection, error) {
	return d.links.Dial(ctx, sandboxID, port)
}
