package spec

import (
	"cmp"
	"strconv"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Ceiling is what the operator says of one limit: what holds where a request names none, and the most that it may name.
// Zero is nothing said; a most without a default is the default, since no limit would be more.
type Ceiling[T cmp.Ordered] struct{ Default, Most T }

// Ceilings are the operator's, for the primary and for each service alike.
type Ceilings struct {
	CPUs   Ceiling[float64]
	Memory Ceiling[int64] // bytes
	Pids   Ceiling[int64]
	// Output bounds each of an exec's output files, in bytes.
	Output Ceiling[uint64]
}

// keep fills in the default, or refuses a value above the most.
func (c Ceiling[T]) keep(field, most string, value *T) error {
	var none T
	if *value == none {
		*value = cmp.Or(c.Default, c.Most)
	}
	if c.Most != none && *value > c.Most {
		return refuse(ReasonLimitTooHigh, field, "the operator allows %s at most; ask for that or less, or leave it out", most)
	}
	return nil
}

// Bound fills in what an exec leaves open and refuses what is above the operator's ceiling. It changes the request.
func (c Ceilings) Bound(req *agboxv1.CreateExecRequest) error {
	return c.Output.keep("max_output_bytes", strconv.FormatUint(c.Output.Most, 10)+" bytes", &req.MaxOutputBytes)
}

func (c Ceilings) container(field string, cpus *float64, memory, pids *int64) error {
	return cmp.Or(
		c.CPUs.keep(field+".cpu_limit", strconv.FormatFloat(c.CPUs.Most, 'f', -1, 64)+" CPUs", cpus),
		c.Memory.keep(field+".memory_limit", strconv.FormatInt(c.Memory.Most, 10)+" bytes", memory),
		c.Pids.keep(field+".pids_limit", strconv.FormatInt(c.Pids.Most, 10)+" processes", pids),
	)
}

// ceilings applies the operator's to a spec that is valid otherwise.
func (r *resolver) ceilings() error {
	s, c := r.out.Spec, r.host.Ceilings
	if err := c.container("create_spec", &s.CpuLimit, &s.MemoryLimit, &s.PidsLimit); err != nil {
		return err
	}
	for field, services := range map[string][]*agboxv1.ServiceSpec{"required_services": s.RequiredServices, "optional_services": s.OptionalServices} {
		for i, service := range services {
			if err := c.container(element("create_spec."+field, i), &service.CpuLimit, &service.MemoryLimit, &service.PidsLimit); err != nil {
				return err
			}
		}
	}
	return nil
}
