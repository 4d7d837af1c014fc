package lifecycle

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Policy is what a sandbox's spec and the daemon's configuration say about its life. The zero value asks for nothing.
type Policy struct {
	// Spec is what the sandbox was asked to be, nil for nothing in particular.
	Spec *agboxv1.CreateSpec
	// IdleTTL is the idle time of a sandbox that sets none itself, CleanupTTL how long one stays STOPPED before it is deleted;
	// 0: for ever.
	IdleTTL, CleanupTTL time.Duration
}

// Users are how many use something of a sandbox, and since when that number is what it is.
type Users struct {
	Count int
	Since time.Time
}

// Presence is who is there now: those who hold the sandbox's lease, and connections to its ports. No log knows of them.
type Presence struct{ Lease, Traffic Users }

// What CreateSpec's on_idle, on_expiry, on_command_end and wake, LeaseSpec's on_end and RestartPolicy's mode may be, beside the default.
const (
	byPause          = "pause"
	byDelete         = "delete"
	byStop           = "stop"
	keepOnCommandEnd = "keep"
	restartOnFailure = "on-failure"
	wakeOnTraffic    = "traffic"
)

// What LeaseSpec and RestartPolicy promise where they are silent.
const (
	defaultLeaseGrace  = 30 * time.Second
	defaultMaxRestarts = 5
	defaultBackoff     = time.Second
)

// pauseRetry is between two tries to pause a sandbox whose time is over.
const pauseRetry = 10 * time.Second

// IdleAt is when the sandbox has been idle for too long, zero for never. Its own command is work as long as it runs, and so is a
// connection to one of its ports.
func (p Policy) IdleAt(s State, traffic Users) time.Time {
	ttl := p.IdleTTL
	switch {
	case s.IdleTtl != nil:
		ttl = s.IdleTtl.AsDuration()
	case p.Spec.GetIdleTtl() != nil:
		ttl = p.Spec.GetIdleTtl().AsDuration()
	}
	if ttl <= 0 || !s.Idle() || traffic.Count > 0 || len(p.Spec.GetCommand()) > 0 && !s.CommandEnded {
		return time.Time{}
	}
	active := s.ActiveAt.AsTime()
	if traffic.Since.After(active) {
		active = traffic.Since
	}
	return active.Add(ttl)
}

// ExpiresAt is when the sandbox's time is over, zero for never.
func (p Policy) ExpiresAt(s State) time.Time {
	switch {
	case s.Phase == None || s.Ending():
	case s.Extended:
		return moment(s.ExpiresAt)
	case p.Spec.GetMaxDuration() != nil:
		return s.CreatedAt.AsTime().Add(p.Spec.GetMaxDuration().AsDuration())
	}
	return time.Time{}
}

// pauseAt is when a sandbox whose time is over is paused, zero for never: one that is paused stays so, and where the pause failed the
// next try comes a while later.
func (p Policy) pauseAt(s State) time.Time {
	expires := p.ExpiresAt(s)
	switch tried := s.ActiveAt.AsTime(); {
	case expires.IsZero(), s.Phase != Ready, s.Operation != NoOperation:
		return time.Time{}
	case s.Reason == ReasonMaxDuration && !tried.Before(expires):
		return tried.Add(pauseRetry)
	}
	return expires
}

// Leased reports whether somebody must hold the sandbox for it to go on.
func (p Policy) Leased(s State) bool { return p.Spec.GetLease() != nil && !s.Detached && !s.Ending() }

// LeaseEndsAt is when the sandbox ends unless somebody holds it again, zero for never.
func (p Policy) LeaseEndsAt(s State, lease Users) time.Time {
	if !p.Leased(s) || lease.Count > 0 {
		return time.Time{}
	}
	spec, since := p.Spec.Lease, lease.Since
	if changed := s.ChangedAt.AsTime(); spec.OnEnd == byStop && changed.After(since) {
		since = changed // whoever resumes it has time to hold it
	}
	if spec.Grace != nil {
		return since.Add(spec.Grace.AsDuration())
	}
	return since.Add(defaultLeaseGrace)
}

// HaltsOnCommandEnd reports whether the end of the primary's own command is the sandbox's failure: then everything in it is ended
// before that is recorded.
func (p Policy) HaltsOnCommandEnd() bool { return p.Spec.GetOnCommandEnd() != keepOnCommandEnd }

// FollowsCommand reports whether the end of the primary's own command is still to be waited for.
func (p Policy) FollowsCommand(s State) bool {
	return s.Up() && !s.CommandEnded && len(p.Spec.GetCommand()) > 0
}

// ServicesToStart are the optional services of which nothing was recorded since the sandbox became READY.
func (p Policy) ServicesToStart(s State) (services []*agboxv1.ServiceSpec) {
	if s.Phase != Ready || s.Operation != NoOperation {
		return nil
	}
	for _, service := range p.Spec.GetOptionalServices() {
		if !s.Known(service.Name) {
			services = append(services, service)
		}
	}
	return services
}

// moment is the zero time where t is not set.
func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// restarts is how often in a row a sandbox that crashes is started again, 0 for never, and how long after the first crash; each
// further one doubles that.
func (p Policy) restarts() (most uint32, backoff time.Duration) {
	policy := p.Spec.GetRestartPolicy()
	switch {
	case policy.GetMode() != restartOnFailure:
		return 0, 0
	case policy.Backoff != nil:
		backoff = policy.Backoff.AsDuration()
	default:
		backoff = defaultBackoff
	}
	return cmp.Or(policy.MaxRestarts, defaultMaxRestarts), backoff
}
