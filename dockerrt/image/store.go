// Package image makes images present on the engine: it looks first, and pulls what is missing once for all who wait.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/oplog"
)

// Policy says when the registry is asked.
type Policy string

const (
	// Missing asks when the engine does not have the image. It is the default: "" means the same.
	Missing Policy = "missing"
	// Always asks each time, so a tag that has moved is followed. A registry that does not answer is an error, even
	// when the engine has the image. It asks for no image that is named by its id: that one cannot move.
	Always Policy = "always"
	// Never asks not at all.
	Never Policy = "never"
)

const (
	// inspectTime bounds an inspect, which takes the engine about a millisecond.
	inspectTime = 20 * time.Second
	// stallTime is more than the engine itself waits in all between the attempts at one layer (50 s), so that its own
	// reason comes first.
	stallTime = 60 * time.Second
	// reportTime lies between two reports of one pull.
	reportTime = time.Second
	// helperTime bounds a credential helper; some ask a service of the network.
	helperTime = 10 * time.Second
)

// Store pulls images to one engine. Use New; all methods may be called at the same time.
type Store struct {
	api       *client.Client
	configDir string
	log       *slog.Logger

	stallTime, reportTime, helperTime time.Duration

	closed context.Context
	close  context.CancelCauseFunc
	pulls  sync.WaitGroup

	mu      sync.Mutex
	current map[string]*pull // by normalised reference; a pull that was given up is not in it
}

// New returns a Store on api, which stays the caller's. configDir holds the config.json of Docker's own tools with the
// user's credentials, read anew for each pull; "" means $DOCKER_CONFIG, else ~/.docker. Close it before api.
func New(api *client.Client, configDir string, log *slog.Logger) *Store {
	s := &Store{
		api: api, log: log,
		configDir: cmp.Or(configDir, os.Getenv(config.EnvOverrideConfigDir)), // the library would read it once per process
		stallTime: stallTime, reportTime: reportTime, helperTime: helperTime,
		current: map[string]*pull{},
	}
	s.closed, s.close = context.WithCancelCause(context.Background())
	return s
}

// Close ends the pulls that are under way, with ErrClosed for those who wait, and returns when their goroutines have
// ended. Every later pull fails with ErrClosed.
func (s *Store) Close() {
	s.mu.Lock()
	s.close(ErrClosed)
	s.mu.Unlock()
	s.pulls.Wait()
}

// Ensure returns the image that ref (name, name:tag, name@digest or an image's id) means on the engine, after a pull
// where the policy asks for one. The result is shared by all who waited for the same pull: do not change it.
//
// A pull goes on as long as one caller waits for it, and has no time limit while it moves. progress, which may be
// nil, is called from within Ensure and never after it returned: when the pull begins or is joined, then at most once
// a second, and at the end of a successful one; not when it would repeat itself or nothing is pulled. A slow progress misses reports and
// holds nobody up.
//
// The errors are those of this package, an end of ctx, and, still recognisable as such, the loss of the engine.
func (s *Store) Ensure(ctx context.Context, ref string, policy Policy, progress func(Progress)) (image.InspectResponse, error) {
	none := image.InspectResponse{}
	policy = cmp.Or(policy, Missing)
	if policy != Missing && policy != Always && policy != Never {
		return none, fmt.Errorf("%w: %s: no pull policy %q: use missing, always or never", ErrFailed, ref, policy)
	}
	parsed, err := reference.ParseAnyReference(ref)
	if err != nil {
		return none, fmt.Errorf("%w: %q is no image reference: %w: use name:tag or name@sha256:digest", ErrFailed, ref, err)
	}
	named, pullable := parsed.(reference.Named)
	if policy != Always || !pullable {
		found, err := s.inspect(ctx, ref)
		switch {
		case err == nil || !errdefs.IsNotFound(err):
			return found, err
		case !pullable:
			return none, fmt.Errorf("%w: %s is not on this engine, and a registry knows no ids: name it, or load it with docker load", ErrNotFound, ref)
		case policy == Never:
			return none, fmt.Errorf("%w: %s is not on this engine, and its pull policy is never: run docker pull %s, or set the policy to missing", ErrNotFound, ref, ref)
		}
	}
	p, err := s.join(reference.TagNameOnly(named))
	if err != nil {
		return none, fmt.Errorf("%s: %w", ref, err)
	}
	defer s.leave(p)
	if err := p.wait(ctx, progress); err != nil {
		return none, fmt.Errorf("%s: %w", ref, err)
	}
	return p.image, p.err
}

func (s *Store) inspect(ctx context.Context, ref string) (image.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	found, err := s.api.ImageInspect(ctx, ref)
	if err != nil {
		return image.InspectResponse{}, fmt.Errorf("cannot inspect image %s: %w", ref, err)
	}
	return found, nil
}

// join adds a waiter to the pull of named, which it begins when there is none.
func (s *Store) join(named reference.Named) (*pull, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := context.Cause(s.closed); err != nil {
		return nil, err
	}
	p := s.current[named.String()]
	if p == nil {
		p = newPull(s, named)
		s.current[named.String()] = p
		s.pulls.Go(p.run)
	}
	p.waiters++
	return p, nil
}

// leave takes a waiter away; the last one ends the pull.
func (s *Store) leave(p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiters--; p.waiters == 0 {
		s.forget(p)
		p.cancel(errors.New("image: nobody waits any more"))
	}
}

// forget makes the next join begin anew. The caller holds mu.
func (s *Store) forget(p *pull) {
	if s.current[p.named.String()] == p {
		delete(s.current, p.named.String())
	}
}

// EnsureNoted is Ensure with what was done in the operation log of ctx.
func (s *Store) EnsureNoted(ctx context.Context, ref, policy string, progress func(Progress)) (image.InspectResponse, error) {
	began, pulling, bytes := time.Now(), false, int64(0)
	found, err := s.Ensure(ctx, ref, Policy(policy), func(p Progress) {
		if !pulling {
			oplog.Printf(ctx, "image %s: its pull has begun", ref)
		}
		pulling, bytes = true, p.Done
		progress(p)
	})
	done := "found"
	if pulling {
		done = fmt.Sprintf("pulled with %d bytes", bytes)
	}
	oplog.Stepped(ctx, began, err, done, "image %s", ref)
	return found, err
}
