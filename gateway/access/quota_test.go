package access_test

import (
	"math"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestQuotas: many at once get no more than the quota, what is deleted makes room, and limits that are not named are set.
func TestQuotas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := team("red")
	id.Quota = access.Quota{Sandboxes: 3, CPUs: 2.5, Memory: 8 << 30, Snapshots: 1}
	red, ctx := w.as(id), t.Context()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = red.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "image", CpuLimit: 0.5}})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case status.Code(err) != codes.ResourceExhausted:
			t.Errorf("a create beyond the quota: %v", err)
		}
	}
	boxes, err := red.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
	if err != nil || len(boxes.Sandboxes) != 3 || made != 3 {
		t.Fatalf("%d were made, there are %v, %v", made, boxes, err)
	}
	if boxes.Sandboxes[0].MemoryLimit != 1<<30 {
		t.Errorf("no memory was named: %v", boxes)
	}
	box := boxes.Sandboxes[0].SandboxId
	for _, state := range []agboxv1.SandboxState{agboxv1.SandboxState_SANDBOX_STATE_READY, agboxv1.SandboxState_SANDBOX_STATE_DELETED} {
		if state == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
			if _, err := red.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: box}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := red.WaitSandbox(ctx, &agboxv1.WaitSandboxRequest{SandboxId: box, States: []agboxv1.SandboxState{state}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = red.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "image", CpuLimit: 1.75}})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "CPUs") {
		t.Errorf("more CPUs than there are: %v", err)
	}
	if _, err := red.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "image", CpuLimit: 1.5}}); err != nil {
		t.Errorf("within the quota: %v", err)
	}
}

// TestQuotasOfNoAmount: what is too much to add up, or no amount at all, is more than any quota.
func TestQuotasOfNoAmount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := team("red")
	id.Quota = access.Quota{CPUs: 2, Memory: 2 << 30}
	red := w.as(id)
	for what, spec := range map[string]*agboxv1.CreateSpec{
		"memory that wraps around": {MemoryLimit: math.MaxInt64, RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "image", MemoryLimit: math.MaxInt64}}},
		"negative memory":          {MemoryLimit: -1 << 40},
		"no number of CPUs":        {CpuLimit: math.NaN()},
		"negative CPUs":            {CpuLimit: -100},
	} {
		spec.Image = "image"
		if _, err := red.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
}
