package sdk_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

func start(t *testing.T, opts ...sdk.Option) (*sdk.Client, *sdktest.Daemon, string) {
	t.Helper()
	d, socket := sdktest.Start(t)
	c, err := sdk.New(append(opts, sdk.WithSocket(socket))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, d, socket
}

func ready(t *testing.T, c *sdk.Client) sdk.Sandbox {
	t.Helper()
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "debian"})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// on has do done at a step, before it is taken.
func on(d *sdktest.Daemon, step string, do func() error) {
	d.OnStep(func(_ context.Context, now string) error {
		if now != step {
			return nil
		}
		return do()
	})
}

// refuse has calls of one kind refused.
func refuse(d *sdktest.Daemon, rpc string, refusal error) {
	d.OnCall(func(now string, _ proto.Message) error {
		if now != rpc {
			return nil
		}
		return refusal
	})
}

func TestCreateWaits(t *testing.T) {
	tests := []struct {
		name  string
		image string
		state sdk.State
		want  error
	}{
		{"ready", "debian", sdk.StateReady, nil},
		{"failed", sdktest.ImageBroken, sdk.StateFailed,
			&sdk.SandboxFailedError{ID: "box1", Code: "SANDBOX_CREATE_FAILED", Message: `image "broken" does not start: choose another`}},
		{"deleted", sdktest.ImageHold, sdk.StateDeleting, &sdk.SandboxDeletedError{ID: "box1", Reason: "delete_requested"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, d, _ := start(t)
			on(d, "create box1", func() error {
				if tt.state == sdk.StateDeleting {
					return c.Delete(t.Context(), "box1", sdk.WithWait(false))
				}
				return nil
			})
			seen := 0
			box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: tt.image}, sdk.WithSandboxID("box1"),
				sdk.WithProgress(func(sdk.Event) { seen++ }))
			if !reflect.DeepEqual(err, tt.want) || box.ID != "box1" || box.State != tt.state {
				t.Fatalf("got %+v, %v", box, err)
			}
			if box.LastEventSequence != uint64(1+seen) || seen == 0 {
				t.Errorf("sequence %d after %d events", box.LastEventSequence, seen)
			}
		})
	}
}

func TestCreateWithoutWaiting(t *testing.T) {
	c, _, _ := start(t)
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: sdktest.ImageHold}, sdk.WithWait(false))
	if err != nil || box.State != sdk.StatePending || box.LastEventSequence != 1 {
		t.Fatalf("got %+v, %v", box, err)
	}
}

func TestCreateGivesUpWithItsContext(t *testing.T) {
	c, d, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.OnCall(func(rpc string, _ proto.Message) error {
		if rpc == "SubscribeSandboxEvents" {
			cancel()
		}
		return nil
	})
	box, err := c.CreateSandbox(ctx, sdk.Spec{Image: sdktest.ImageHold}, sdk.WithSandboxID("box1"))
	if !errors.Is(err, context.Canceled) || box.ID != "box1" {
		t.Fatalf("got %+v, %v", box, err)
	}
}

func TestWaitSurvivesARestart(t *testing.T) {
	broken := make(chan struct{}, 1)
	c, d, socket := start(t, sdk.WithBrokenStream(func(error) {
		select {
		case broken <- struct{}{}:
		default:
		}
	}))
	subscribed, down := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.OnCall(func(rpc string, _ proto.Message) error {
		if rpc == "SubscribeSandboxEvents" {
			once.Do(func() { close(subscribed) })
		}
		return nil
	})
	go func() {
		defer close(down)
		<-subscribed
		d.Shutdown()
		d.Release()
		<-broken
		if err := d.Serve(socket); err != nil {
			t.Error(err)
		}
	}()
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: sdktest.ImageHold}, sdk.WithSandboxID("box1"))
	<-down
	if err != nil || box.State != sdk.StateReady {
		t.Fatalf("got %+v, %v", box, err)
	}
}

func TestSpecTravelsWhole(t *testing.T) {
	c, l := listen(t)
	spec := sdk.Spec{
		Image:        "debian",
		Mounts:       []sdk.Mount{{Source: "/src", Target: "/workspace", Writable: true}},
		Copies:       []sdk.Copy{{Source: "/data", Target: "/data", Exclude: []string{"*.o"}}},
		BuiltinTools: []string{"git"},
		RequiredServices: []sdk.Service{{Name: "db", Image: "postgres", Env: map[string]string{"A": "b"},
			Healthcheck:        &sdk.Healthcheck{Test: []string{"CMD", "true"}, Interval: time.Second, Retries: 3},
			PostStartOnPrimary: []string{"migrate"}}},
		OptionalServices: []sdk.Service{{Name: "web", Image: "nginx", Command: []string{"serve"}, User: "9", PullPolicy: sdk.PullAlways,
			Limits: sdk.Limits{CPULimit: 0.5, MemoryLimit: 1 << 30, PidsLimit: 7, DiskLimit: 1 << 31, ShmSize: 1 << 20},
			Tmpfs:  []sdk.Tmpfs{{Target: "/t", Size: 5}}, CapAdd: []string{"NET_RAW"}}},
		Labels:  map[string]string{"team": "a"},
		Env:     map[string]string{"K": "v"},
		IdleTTL: sdk.NeverIdle,
		Command: []string{"run", "x"}, OnCommandEnd: sdk.CommandEndKeeps, User: "1:2", WorkingDir: "/srv", PullPolicy: sdk.PullNever,
		Limits: sdk.Limits{CPULimit: 1.5, MemoryLimit: 1 << 32, PidsLimit: 8, DiskLimit: 1 << 33, ShmSize: 1 << 21},
		Tmpfs:  []sdk.Tmpfs{{Target: "/tmp"}}, GPUs: "all", ReadOnlyRoot: true, CapAdd: []string{"KILL"}, AllowNewPrivileges: true,
		Network:  &sdk.Network{Mode: sdk.NetworkAllow, Allow: []sdk.Destination{{CIDR: "192.0.2.0/24", Ports: []uint16{80}, Protocol: "tcp"}}},
		Ports:    []sdk.Port{{ContainerPort: 80, HostPort: 8080, HostIP: "0.0.0.0", Protocol: "udp"}},
		Hostname: "box", ExtraHosts: map[string]string{"db": "192.0.2.7"},
		MaxDuration: time.Hour, OnExpiry: "stop", OnIdle: "pause", Wake: sdk.WakeOnTraffic,
		Lazy: true, Lease: &sdk.Lease{Grace: time.Minute, OnEnd: "stop"}, Restart: &sdk.RestartOnFailure{Max: 3, Backoff: time.Second},
		Runtime: "runsc", NeverWarm: true,
	}
	box, err := c.CreateSandbox(t.Context(), spec, sdk.WithSandboxID("box1"), sdk.WithConfigYAML([]byte("image: x\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSandboxRequest{SandboxId: "box1", ConfigYaml: []byte("image: x\n"), CreateSpec: &agboxv1.CreateSpec{
		Image:        "debian",
		Mounts:       []*agboxv1.MountSpec{{Source: "/src", Target: "/workspace", Writable: true}},
		Copies:       []*agboxv1.CopySpec{{Source: "/data", Target: "/data", ExcludePatterns: []string{"*.o"}}},
		BuiltinTools: []string{"git"},
		RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "postgres", Envs: map[string]string{"A": "b"},
			Healthcheck:        &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(time.Second), Retries: 3},
			PostStartOnPrimary: []string{"migrate"}}},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "web", Image: "nginx", Command: []string{"serve"}, User: "9", PullPolicy: "always",
			CpuLimit: 0.5, MemoryLimit: 1 << 30, PidsLimit: 7, DiskLimit: 1 << 31, ShmSize: 1 << 20,
			Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/t", Size: 5}}, CapAdd: []string{"NET_RAW"}}},
		Labels:  map[string]string{"team": "a"},
		Envs:    map[string]string{"K": "v"},
		IdleTtl: durationpb.New(0),
		Command: []string{"run", "x"}, OnCommandEnd: "keep", User: "1:2", WorkingDir: "/srv", PullPolicy: "never",
		CpuLimit: 1.5, MemoryLimit: 1 << 32, PidsLimit: 8, DiskLimit: 1 << 33, ShmSize: 1 << 21,
		Tmpfs: []*agboxv1.TmpfsSpec{{Target: "/tmp"}}, Gpus: "all", ReadOnlyRoot: true, CapAdd: []string{"KILL"}, AllowNewPrivileges: true,
		Network:  &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.0.2.0/24", Ports: []uint32{80}, Protocol: "tcp"}}},
		Ports:    []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080, HostIp: "0.0.0.0", Protocol: "udp"}},
		Hostname: "box", ExtraHosts: map[string]string{"db": "192.0.2.7"},
		MaxDuration: durationpb.New(time.Hour), OnExpiry: "stop", OnIdle: "pause", Wake: "traffic",
		Lazy: true, Lease: &agboxv1.LeaseSpec{Grace: durationpb.New(time.Minute), OnEnd: "stop"},
		RestartPolicy: &agboxv1.RestartPolicy{Mode: "on-failure", MaxRestarts: 3, Backoff: durationpb.New(time.Second)},
		Runtime:       "runsc", Pool: "never",
	}}
	for fields, i := want.CreateSpec.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
		if !want.CreateSpec.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is not tried", fields.Get(i).Name())
		}
	}
	if got := l.created; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !reflect.DeepEqual(box.RequiredServices, spec.RequiredServices) || !reflect.DeepEqual(box.OptionalServices, spec.OptionalServices) {
		t.Errorf("services came back as %+v, %+v", box.RequiredServices, box.OptionalServices)
	}

	for ttl, want := range map[time.Duration]*durationpb.Duration{0: nil, time.Minute: durationpb.New(time.Minute)} {
		if _, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "debian", IdleTTL: ttl}); err != nil {
			t.Fatal(err)
		}
		if got := l.created.GetCreateSpec().GetIdleTtl(); !proto.Equal(got, want) {
			t.Errorf("IdleTTL %v travels as %v", ttl, got)
		}
	}
}

func TestLife(t *testing.T) {
	c, _, _ := start(t)
	ctx := t.Context()
	if daemon, err := c.Ping(ctx); err != nil || daemon != (sdk.Daemon{Name: "agboxd", Version: sdktest.Version}) {
		t.Fatalf("ping: %+v, %v", daemon, err)
	}
	box := ready(t, c)
	if err := c.Resume(ctx, box.ID); !errors.Is(err, sdk.ErrSandboxInvalidState) {
		t.Errorf("resume of READY: %v", err)
	}
	for _, step := range []struct {
		do   func() error
		want sdk.State
	}{
		{func() error { return c.Stop(ctx, box.ID) }, sdk.StateStopped},
		{func() error { return c.Resume(ctx, box.ID) }, sdk.StateReady},
		{func() error { return c.Delete(ctx, box.ID) }, sdk.StateDeleted},
		{func() error { return c.Delete(ctx, box.ID) }, sdk.StateDeleted},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("to %s: %v", step.want, err)
		}
		if got, err := c.GetSandbox(ctx, box.ID); err != nil || got.State != step.want {
			t.Fatalf("got %s, %v; want %s", got.State, err, step.want)
		}
	}
	if err := c.Stop(ctx, box.ID, sdk.WithWait(false)); !errors.Is(err, sdk.ErrSandboxInvalidState) {
		t.Errorf("stop of DELETED: %v", err)
	}
	if err := c.Delete(ctx, "none"); !errors.Is(err, sdk.ErrSandboxNotFound) {
		t.Errorf("delete of nothing: %v", err)
	}
}

func TestDeleteOfAFailedSandbox(t *testing.T) {
	c, _, _ := start(t)
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: sdktest.ImageBroken})
	if failed := (*sdk.SandboxFailedError)(nil); !errors.As(err, &failed) || failed.Code != "SANDBOX_CREATE_FAILED" {
		t.Fatalf("create: %v", err)
	}
	if err := c.Delete(t.Context(), box.ID); err != nil {
		t.Errorf("an older failure counted: %v", err)
	}
}

func TestLists(t *testing.T) {
	c, _, _ := start(t)
	ctx := t.Context()
	create := func(id, team string) {
		if _, err := c.CreateSandbox(ctx, sdk.Spec{Image: "debian", Labels: map[string]string{"team": team}}, sdk.WithSandboxID(id)); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(filter sdk.Filter) (ids []string) {
		boxes, err := c.ListSandboxes(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, box := range boxes {
			ids = append(ids, box.ID)
		}
		return ids
	}
	create("box1", "a")
	create("box2", "b")
	create("box3", "a")
	if got := ids(sdk.Filter{Labels: map[string]string{"team": "a"}}); !reflect.DeepEqual(got, []string{"box3", "box1"}) {
		t.Errorf("by label: %v", got)
	}
	deleted, err := c.DeleteSandboxes(ctx, sdk.Selection{Labels: map[string]string{"team": "a"}})
	if err != nil || !reflect.DeepEqual(deleted, []string{"box3", "box1"}) {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	if got := ids(sdk.Filter{}); !reflect.DeepEqual(got, []string{"box2"}) {
		t.Errorf("left: %v", got)
	}
	if got := ids(sdk.Filter{IncludeDeleted: true}); len(got) != 3 {
		t.Errorf("with deleted: %v", got)
	}
	if _, err := c.DeleteSandboxes(ctx, sdk.Selection{}); !errors.Is(err, sdk.ErrInvalidArgument) {
		t.Errorf("empty selector: %v", err)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	c, d, _ := start(t)
	refuse(d, "GetSandbox", sdktest.Refusal(codes.OutOfRange, "SOMETHING_NEW", "say so", "sandbox_id", "box1"))
	_, err := c.GetSandbox(t.Context(), "box1")
	if e := (*sdk.Error)(nil); !errors.As(err, &e) || e.Reason != "SOMETHING_NEW" || e.Metadata["sandbox_id"] != "box1" || err.Error() != "say so" {
		t.Fatalf("got %#v", err)
	}
}

// TestWaitsWithoutEvents: where the daemon has removed events before a wait has read them, the state tells.
func TestWaitsWithoutEvents(t *testing.T) {
	c, d, _ := start(t)
	ctx := t.Context()
	box := ready(t, c)
	refuse(d, "SubscribeSandboxEvents", sdktest.Refusal(codes.OutOfRange, "SANDBOX_EVENT_SEQUENCE_EXPIRED", "sequence 3 is not one to continue from"))
	for what, do := range map[string]func() error{
		"a stop and a resume": func() error { return errors.Join(c.Stop(ctx, box.ID), c.Resume(ctx, box.ID)) },
		"a create": func() error {
			made, err := c.CreateSandbox(ctx, sdk.Spec{Image: "debian"})
			if made.State != sdk.StateReady {
				t.Errorf("the new one is %v", made)
			}
			return err
		},
		"an exec": func() error {
			exec, err := c.CreateExec(ctx, box.ID, []string{"true"}, sdk.WithWait(true))
			if exec.State != sdk.ExecFinished {
				t.Errorf("the exec is %v", exec)
			}
			return err
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.CreateSandbox(ctx, sdk.Spec{Image: sdktest.ImageBroken}, sdk.WithSandboxID("broken-1")); !reflect.DeepEqual(err,
		&sdk.SandboxFailedError{ID: "broken-1", Code: "SANDBOX_CREATE_FAILED", Message: `image "broken" does not start: choose another`}) {
		t.Errorf("the wait for a broken one ends with %v", err)
	}
	if err := c.Delete(ctx, box.ID); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	if got, err := c.GetSandbox(ctx, box.ID); err != nil || got.State != sdk.StateDeleted {
		t.Errorf("it is %v, %v", got, err)
	}
}
