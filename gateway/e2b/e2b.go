// Package e2b is the control plane of E2B's wire over agbox: an http.Handler that answers what the unmodified E2B SDKs ask for about
// sandboxes, snapshots and templates, and does it by the daemon's own calls. What happens inside a sandbox (commands, files) is the data
// plane's, package envd.
//
// It keeps nothing of a sandbox in memory but measurements: what E2B knows of one and agbox does not is in a label (note), so that a
// gateway that was killed goes on as before, and several may serve the same daemon.
package e2b

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/sdk"
)

// EnvdVersion is the version of E2B's envd whose features the data plane has. SDKs turn features on by it.
const EnvdVersion = "0.6.4"

// What a create means that does not say how long, by the API's generation, and the longest that may be asked for.
const (
	defaultTimeoutV1 = 15 * time.Second
	defaultTimeout   = 300 * time.Second
	maxTimeout       = 30 * 24 * time.Hour
)

const (
	// maxBody bounds the body of a request; labels of a sandbox have less.
	maxBody = 1 << 20
	// patience is how long a call waits for the daemon: a little less than the SDKs' own 60 s.
	patience = 55 * time.Second
)

// Template is what an alias of the configuration stands for.
type Template struct {
	Image string
	// CPUs and MemoryBytes bound its sandboxes; 0: the daemon's default.
	CPUs        float64
	MemoryBytes int64
}

// Config is what the control plane stands on.
type Config struct {
	// Client returns the daemon as the request's sender may see it: package access bounds what it may do. It fails for who is not known.
	// Whoever returns it closes it.
	Client func(*http.Request) (*sdk.Client, error)
	// Daemon is the daemon itself, for what belongs to nobody: the measurements of all sandboxes.
	Daemon *sdk.Client
	// Token returns the access token of a sandbox's data plane, always the same for one sandbox.
	Token func(sandboxID string) string
	// PortsToken returns the one of its ports, where not everybody may use them.
	PortsToken func(sandboxID string) string
	// Templates are the aliases that operators configured.
	Templates map[string]Template
	// Made reports whether a snapshot with these labels was made by those whose names of snapshots the request's sender goes by.
	Made func(r *http.Request, labels map[string]string) bool
	// Owner names who sent a request, for what is kept of builds. Builds are nil where none are to be made.
	Owner  func(*http.Request) string
	Builds *build.Builds
	// Domain is the domain of sandboxes' ports, such as localhost:7439, "" where they are not served.
	Domain string
	Log    *slog.Logger
}

// Handler answers the control plane's calls. Close must follow.
type Handler struct {
	config   Config
	mux      *http.ServeMux
	measured *measured
	stop     context.CancelFunc
	done     chan struct{}
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler that measures sandboxes from now on.
func New(config Config) *Handler {
	ctx, stop := context.WithCancel(context.Background())
	h := &Handler{config: config, mux: http.NewServeMux(), measured: newMeasured(), stop: stop, done: make(chan struct{})}
	h.route()
	go func() {
		defer close(h.done)
		h.measured.follow(ctx, config.Daemon, config.Log)
	}()
	return h
}

// Close ends the measurements.
func (h *Handler) Close() {
	h.stop()
	<-h.done
}

const idAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

// newID returns a name such as E2B's sandboxes have: a letter and 20 characters of [a-z0-9].
func newID(kind byte) string {
	random := make([]byte, 20)
	for i := range random {
		random[i] = idAlphabet[below36()]
	}
	return string(kind) + string(random)
}

// below36 returns a number below 36, each as probable as the others.
func below36() byte {
	for {
		var b [1]byte
		rand.Read(b[:])
		if b[0] < 252 { // 7 times 36
			return b[0] % 36
		}
	}
}
