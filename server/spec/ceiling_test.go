package spec_test

import (
	"errors"
	"testing"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// TestCeilings: what the operator allows holds for what a request names, and for what it leaves out; services too.
func TestCeilings(t *testing.T) {
	host := spec.Host{Places: hostpath.Places{Home: t.TempDir()}, Ceilings: spec.Ceilings{
		CPUs: spec.Ceiling[float64]{Default: 1, Most: 4}, Memory: spec.Ceiling[int64]{Most: 1 << 30},
		Pids: spec.Ceiling[int64]{Default: 100}, Output: spec.Ceiling[uint64]{Most: 1 << 20},
	}}
	resolve := func(s *agboxv1.CreateSpec) (*agboxv1.CreateSpec, error) {
		s.Image = "image"
		s.OptionalServices = append(s.OptionalServices, &agboxv1.ServiceSpec{Name: "other", Image: "image"})
		resolved, err := spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: s}, host)
		if err != nil {
			return nil, err
		}
		return resolved.Spec, nil
	}
	left, err := resolve(&agboxv1.CreateSpec{})
	if err != nil {
		t.Fatal(err)
	}
	service := left.OptionalServices[0]
	if left.CpuLimit != 1 || left.MemoryLimit != 1<<30 || left.PidsLimit != 100 || service.CpuLimit != 1 || service.MemoryLimit != 1<<30 || service.PidsLimit != 100 {
		t.Errorf("what was left out is %v", left)
	}
	named, err := resolve(&agboxv1.CreateSpec{CpuLimit: 4, MemoryLimit: 512 << 20, PidsLimit: 100_000})
	if err != nil || named.CpuLimit != 4 || named.MemoryLimit != 512<<20 || named.PidsLimit != 100_000 {
		t.Errorf("what was named is %v, %v", named, err)
	}
	for field, s := range map[string]*agboxv1.CreateSpec{
		"create_spec.cpu_limit":                         {CpuLimit: 4.5},
		"create_spec.memory_limit":                      {MemoryLimit: 1<<30 + 1},
		"create_spec.optional_services[0].memory_limit": {OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "image", MemoryLimit: 2 << 30}}},
	} {
		_, err := resolve(s)
		if refused, ok := errors.AsType[*spec.Error](err); !ok || refused.Reason != spec.ReasonLimitTooHigh || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	exec := &agboxv1.CreateExecRequest{}
	if err := host.Ceilings.Bound(exec); err != nil || exec.MaxOutputBytes != 1<<20 {
		t.Errorf("an exec's output is %d, %v", exec.MaxOutputBytes, err)
	}
	exec.MaxOutputBytes++
	if err := host.Ceilings.Bound(exec); err == nil {
		t.Error("more output than is allowed is taken")
	}
}
