package access

import (
	"fmt"
	"maps"
	"math"
	"sync"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// What a sandbox of a token with a bound gets, and each of its services, where the request names none.
const (
	usualCPUs   = 1.0
	usualMemory = 1 << 30
)

// use is what a sandbox counts for.
type use struct {
	cpus   float64
	memory int64
}

// and adds what the daemon has not checked yet: what is no amount counts as all there is.
func (u use) and(cpus float64, memory int64) use {
	if !(cpus >= 0) {
		cpus = math.Inf(1)
	}
	if memory < 0 || memory > math.MaxInt64-u.memory {
		memory = math.MaxInt64 - u.memory
	}
	return use{u.cpus + cpus, u.memory + memory}
}

// quotas know what each identity was granted and the daemon may not tell yet.
type quotas struct {
	mu        sync.Mutex
	sandboxes claims
	snapshots claims
}

// claims are what was granted by identity and id, until the call is over; and who is looking meanwhile.
type claims struct {
	granted map[string]map[string]use
	looking map[*look]struct{}
}

// look is one look at what there is. seen has all that was granted when it began, and since.
type look struct {
	identity string
	seen     map[string]use
}

// look begins one, before the daemon is asked.
func (q *quotas) look(c *claims, identity string) *look {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &look{identity, maps.Clone(c.granted[identity])}
	if l.seen == nil {
		l.seen = map[string]use{}
	}
	if c.looking == nil {
		c.looking = map[*look]struct{}{}
	}
	c.looking[l] = struct{}{}
	return l
}

// grant ends a look. Where fits finds no fault with all there is, id included, it is granted until end is called.
func (q *quotas) grant(c *claims, l *look, id string, wanted use, there map[string]use, fits func(all map[string]use) error) (end func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(c.looking, l)
	all := maps.Clone(l.seen)
	maps.Copy(all, there)
	all[id] = wanted
	if err := fits(all); err != nil {
		return nil, err
	}
	if c.granted == nil {
		c.granted = map[string]map[string]use{}
	}
	mine := c.granted[l.identity]
	if mine == nil {
		mine = map[string]use{}
		c.granted[l.identity] = mine
	}
	mine[id] = wanted
	for other := range c.looking {
		if other.identity == l.identity {
			other.seen[id] = wanted
		}
	}
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if delete(mine, id); len(mine) == 0 && len(c.granted[l.identity]) == 0 {
			delete(c.granted, l.identity)
		}
	}), nil
}

func (q *quotas) leave(c *claims, l *look) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(c.looking, l)
}

// reserve refuses a sandbox that would be more than the quota, and counts it until the call is over. Limits that the quota needs
// and that nobody has set it sets.
func (c *call) reserve(id string, over, base *agboxv1.CreateSpec, like *agboxv1.SandboxHandle) error {
	quota := c.id.Quota
	if quota == (Quota{Snapshots: quota.Snapshots}) {
		return nil
	}
	wanted := c.limited(over, base, like)
	l := c.quotas.look(&c.quotas.sandboxes, c.id.Name)
	defer c.quotas.leave(&c.quotas.sandboxes, l)
	there, err := c.used()
	if err != nil {
		return err
	}
	end, err := c.quotas.grant(&c.quotas.sandboxes, l, id, wanted, there, func(all map[string]use) error { return quota.fits(all, wanted) })
	if err != nil {
		return err
	}
	c.release = end
	return nil
}

// used is what the identity's sandboxes count for.
func (c *call) used() (map[string]use, error) {
	client := agboxv1.NewSandboxServiceClient(c.daemon)
	boxes, err := client.ListSandboxes(c.outgoing(), &agboxv1.ListSandboxesRequest{LabelSelector: c.id.Labels})
	if err != nil {
		return nil, err
	}
	there := map[string]use{}
	for _, box := range boxes.GetSandboxes() {
		if box.GetElided() { // its services' limits are left out
			whole, err := client.GetSandbox(c.outgoing(), &agboxv1.GetSandboxRequest{SandboxId: box.GetSandboxId()})
			if err != nil {
				return nil, err
			}
			box = whole.GetSandbox()
		}
		there[box.GetSandboxId()] = useOf(box)
	}
	return there, nil
}

func (q Quota) fits(all map[string]use, wanted use) error {
	var sum use
	for _, one := range all {
		sum = sum.and(one.cpus, one.memory)
	}
	switch {
	case q.Sandboxes > 0 && len(all) > q.Sandboxes:
		return overQuota("sandboxes", fmt.Sprintf("%d sandboxes are all that your token may have", q.Sandboxes))
	case q.CPUs > 0 && sum.cpus > q.CPUs:
		return overQuota("cpus", fmt.Sprintf("with %g CPUs for this one your token's sandboxes would have %g, and may have %g", wanted.cpus, sum.cpus, q.CPUs))
	case q.Memory > 0 && sum.memory > q.Memory:
		return overQuota("memory", fmt.Sprintf("with %d bytes of memory for this one your token's sandboxes would have %d, and may have %d", wanted.memory, sum.memory, q.Memory))
	}
	return nil
}

func overQuota(of, message string) error {
	return Refusal(codes.ResourceExhausted, ReasonQuota, message+": delete some, or ask for less", "quota", of)
}

// limited puts limits in over where the quota needs them, and returns what the sandbox counts for.
func (c *call) limited(over, base *agboxv1.CreateSpec, like *agboxv1.SandboxHandle) use {
	whole := spec.Merge(base, over)
	if like != nil {
		if whole.CpuLimit == 0 {
			whole.CpuLimit = like.GetCpuLimit()
		}
		if whole.MemoryLimit == 0 {
			whole.MemoryLimit = like.GetMemoryLimit()
		}
	}
	whole.CpuLimit, whole.MemoryLimit = c.needed(whole.CpuLimit, whole.MemoryLimit)
	over.CpuLimit, over.MemoryLimit = whole.CpuLimit, whole.MemoryLimit
	if len(whole.RequiredServices) == 0 && like != nil {
		whole.RequiredServices = like.GetRequiredServices()
	}
	if len(whole.OptionalServices) == 0 && like != nil {
		whole.OptionalServices = like.GetOptionalServices()
	}
	for _, services := range [][]*agboxv1.ServiceSpec{whole.RequiredServices, whole.OptionalServices} {
		for _, service := range services {
			service.CpuLimit, service.MemoryLimit = c.needed(service.CpuLimit, service.MemoryLimit)
		}
	}
	over.RequiredServices, over.OptionalServices = whole.RequiredServices, whole.OptionalServices
	return counted(whole.CpuLimit, whole.MemoryLimit, whole.RequiredServices, whole.OptionalServices)
}

func (c *call) needed(cpus float64, memory int64) (float64, int64) {
	if cpus == 0 && c.id.Quota.CPUs > 0 {
		cpus = min(usualCPUs, c.id.Quota.CPUs)
	}
	if memory == 0 && c.id.Quota.Memory > 0 {
		memory = min(usualMemory, c.id.Quota.Memory)
	}
	return cpus, memory
}

func useOf(box *agboxv1.SandboxHandle) use {
	return counted(box.GetCpuLimit(), box.GetMemoryLimit(), box.GetRequiredServices(), box.GetOptionalServices())
}

func counted(cpus float64, memory int64, services ...[]*agboxv1.ServiceSpec) use {
	sum := use{}.and(cpus, memory)
	for _, list := range services {
		for _, service := range list {
			sum = sum.and(service.GetCpuLimit(), service.GetMemoryLimit())
		}
	}
	return sum
}

// reserveSnapshot is reserve for a snapshot.
func (c *call) reserveSnapshot(id string) error {
	most := c.id.Quota.Snapshots
	if most == 0 {
		return nil
	}
	l := c.quotas.look(&c.quotas.snapshots, c.id.Name)
	defer c.quotas.leave(&c.quotas.snapshots, l)
	response, err := agboxv1.NewSandboxServiceClient(c.daemon).ListSnapshots(c.outgoing(), &agboxv1.ListSnapshotsRequest{LabelSelector: c.id.Labels})
	if err != nil {
		return err
	}
	there := map[string]use{}
	for _, snapshot := range response.GetSnapshots() {
		there[snapshot.GetSnapshotId()] = use{}
	}
	end, err := c.quotas.grant(&c.quotas.snapshots, l, id, use{}, there, func(all map[string]use) error {
		if len(all) > most {
			return overQuota("snapshots", fmt.Sprintf("%d snapshots are all that your token may have", most))
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.release = end
	return nil
}
