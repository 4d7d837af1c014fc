package access

import (
	"fmt"
	"maps"
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

// quotas know what each identity has asked for and the daemon may not tell yet.
type quotas struct {
	mu        sync.Mutex
	sandboxes map[string]map[string]use // by identity and sandbox
	snapshots map[string]map[string]use
}

// begin notes what is asked for, and returns all that is under way of the identity's, this included.
func (q *quotas) begin(of *map[string]map[string]use, identity, id string, u use) (underWay map[string]use, end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if *of == nil {
		*of = map[string]map[string]use{}
	}
	mine := (*of)[identity]
	if mine == nil {
		mine = map[string]use{}
		(*of)[identity] = mine
	}
	mine[id] = u
	return maps.Clone(mine), sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if delete(mine, id); len(mine) == 0 {
			delete(*of, identity)
		}
	})
}

// reserve refuses a sandbox that would be more than the quota, and counts it until the call is over. Limits that the quota needs
// and that nobody has set it sets.
func (c *call) reserve(id string, over, base *agboxv1.CreateSpec, like *agboxv1.SandboxHandle) error {
	quota := c.id.Quota
	if quota == (Quota{Snapshots: quota.Snapshots}) {
		return nil
	}
	wanted := c.limited(over, base, like)
	underWay, end := c.quotas.begin(&c.quotas.sandboxes, c.id.Name, id, wanted)
	c.release = end
	client := agboxv1.NewSandboxServiceClient(c.daemon)
	boxes, err := client.ListSandboxes(c.outgoing(), &agboxv1.ListSandboxesRequest{LabelSelector: c.id.Labels})
	if err != nil {
		end()
		return err
	}
	all := underWay
	for _, box := range boxes.GetSandboxes() {
		if box.GetElided() { // its services' limits are left out
			whole, err := client.GetSandbox(c.outgoing(), &agboxv1.GetSandboxRequest{SandboxId: box.GetSandboxId()})
			if err != nil {
				end()
				return err
			}
			box = whole.GetSandbox()
		}
		all[box.GetSandboxId()] = useOf(box)
	}
	all[id] = wanted
	var sum use
	for _, one := range all {
		sum.cpus, sum.memory = sum.cpus+one.cpus, sum.memory+one.memory
	}
	switch {
	case quota.Sandboxes > 0 && len(all) > quota.Sandboxes:
		err = overQuota("sandboxes", fmt.Sprintf("%d sandboxes are all that your token may have", quota.Sandboxes))
	case quota.CPUs > 0 && sum.cpus > quota.CPUs:
		err = overQuota("cpus", fmt.Sprintf("with %g CPUs for this one your token's sandboxes would have %g, and may have %g", wanted.cpus, sum.cpus, quota.CPUs))
	case quota.Memory > 0 && sum.memory > quota.Memory:
		err = overQuota("memory", fmt.Sprintf("with %d bytes of memory for this one your token's sandboxes would have %d, and may have %d", wanted.memory, sum.memory, quota.Memory))
	}
	if err != nil {
		end()
	}
	return err
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
	sum := use{cpus, memory}
	for _, list := range services {
		for _, service := range list {
			sum.cpus, sum.memory = sum.cpus+service.GetCpuLimit(), sum.memory+service.GetMemoryLimit()
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
	all, end := c.quotas.begin(&c.quotas.snapshots, c.id.Name, id, use{})
	c.release = end
	response, err := agboxv1.NewSandboxServiceClient(c.daemon).ListSnapshots(c.outgoing(), &agboxv1.ListSnapshotsRequest{LabelSelector: c.id.Labels})
	for _, snapshot := range response.GetSnapshots() {
		all[snapshot.GetSnapshotId()] = use{}
	}
	if err == nil && len(all) > most {
		err = overQuota("snapshots", fmt.Sprintf("%d snapshots are all that your token may have", most))
	}
	if err != nil {
		end()
	}
	return err
}
