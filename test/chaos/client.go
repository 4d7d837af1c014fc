package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

// client asks for valid things, one after the other, as its random numbers have it. It has one sandbox at a time.
type client struct {
	world  *world
	n      int
	random *rand.Rand
	made   int
	execs  int
	// haste is the part of steps that come in the middle of what is under way: then the sandbox is deleted.
	haste float64
	// files are the names of those that the daemon has put into its sandbox; kept is its snapshot, nil when it has none.
	files []string
	kept  *kept
	// dir is where they lie.
	dir string
	// box is its sandbox, nil when it has none. Others may look at it.
	box atomic.Pointer[follower]
}

func newClient(w *world, n int, seed uint64) *client {
	c := &client{world: w, n: n, random: rand.New(rand.NewPCG(seed, uint64(n)+1)), haste: 0.1}
	if n%4 == 3 {
		c.haste = 0.5
	}
	return c
}

// live takes steps until quiet is closed.
func (c *client) live(ctx context.Context, quiet <-chan struct{}) {
	for ctx.Err() == nil {
		select {
		case <-quiet:
			return
		default:
			c.step(ctx)
		}
	}
}

// step does one thing that fits the state of its sandbox.
func (c *client) step(ctx context.Context) {
	box := c.box.Load()
	if box == nil {
		c.create(ctx)
		return
	}
	idle := func(v view) bool { return v.last > 0 && !v.busy }
	if c.random.Float64() >= c.haste && !box.await(ctx, idle) {
		c.giveUp(ctx)
		return
	}
	v, dice := box.current(), c.random.Float64()
	switch {
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		c.box.Store(nil)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_FAILED, v.busy:
		c.operate(ctx, box, checker.Delete)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && dice < 0.7:
		c.operate(ctx, box, checker.Resume)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && dice < 0.8:
		c.compare(ctx, box)
	case c.dir == layered && !box.ends && dice < 0.1:
		c.changes(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && dice < 0.9:
		c.operate(ctx, box, checker.Unpause)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.48:
		c.exec(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.56:
		c.attach(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.63:
		c.upload(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.68:
		c.compare(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.74:
		c.cancel(ctx, box, v)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.78:
		c.look(ctx, box, v)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.82 && len(v.running) == 0: // what is frozen does not end
		c.operate(ctx, box, checker.Pause)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.85 && c.dir == fileDir: // a layer is in no snapshot
		c.keep(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.87 && c.dir == fileDir && !box.ends:
		c.fork(ctx, box)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.91:
		c.operate(ctx, box, checker.Stop)
	case v.state == agboxv1.SandboxState_SANDBOX_STATE_READY && dice < 0.95:
		c.operate(ctx, box, checker.Drain)
	default:
		c.operate(ctx, box, checker.Delete)
	}
}

// giveUp lets go of a sandbox whose events are not told any more; the checker says why.
func (c *client) giveUp(ctx context.Context) {
	if ctx.Err() == nil {
		c.box.Store(nil)
	}
}

// ask sends a request until the daemon answers, and returns what refused it: also when an earlier try, whose answer
// got lost, was accepted.
func (c *client) ask(ctx context.Context, what string, send func(context.Context) error) error {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, callTime)
		err := send(call)
		cancel()
		if !transient(err) || ctx.Err() != nil {
			if err == nil {
				c.world.served(what)
			}
			c.complain(what, err)
			return err
		}
		c.world.rest(ctx)
	}
	return ctx.Err()
}

// callTime is how long a daemon may take to answer.
const callTime = 30 * time.Second

// complain reports answers that a valid request never gets.
func (c *client) complain(what string, err error) {
	typed, ok := errors.AsType[*raw.Error](err)
	if !ok || c.world.config.Faults && typed.Reason == "DOCKER_UNAVAILABLE" {
		return
	}
	switch typed.Code {
	case codes.AlreadyExists, codes.FailedPrecondition, codes.NotFound, codes.Canceled:
		return // the outcome of an earlier try, or the sandbox failed meanwhile
	case codes.Internal:
		if c.world.config.Faults {
			return // what Docker said
		}
	}
	c.world.Checker.Report().Add(checker.BadAnswer, what, fmt.Sprintf("%s: %s", typed.Code, err))
}

func (c *client) create(ctx context.Context) {
	c.made++
	id := fmt.Sprintf("%s-%d-%d", c.world.prefix, c.n, c.made)
	request := &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{}}
	leased, ends := c.random.Float64() < 0.15, c.random.Float64() < 0.1
	switch {
	case ends:
		request.CreateSpec.Lease = &agboxv1.LeaseSpec{Grace: durationpb.New(endGrace)}
		c.world.record.Ends(id)
	case leased:
		request.CreateSpec.Lease = &agboxv1.LeaseSpec{Grace: durationpb.New(leaseGrace)}
	}
	c.files, c.dir = nil, fileDir
	if c.kept != nil && c.random.Float64() < 0.5 {
		request.SnapshotId, c.files = c.kept.id, slices.Clone(c.kept.files)
	} else {
		request.CreateSpec.Image = c.world.Image
		if c.random.Float64() < 0.25 {
			c.dir = layered
			request.CreateSpec.Mounts = []*agboxv1.MountSpec{{Source: c.world.tree, Target: layered, Mode: "cow"}}
		}
	}
	if !c.begin(ctx, id, func(ctx context.Context) error {
		_, err := c.world.client.CreateSandbox(ctx, request)
		return err
	}) {
		return
	}
	box := c.world.follow(ctx, id)
	if box.ends = ends; leased && !ends {
		c.world.hold(ctx, box)
	}
	c.box.Store(box)
}

// begin asks for a new sandbox and reports whether there is one then.
func (c *client) begin(ctx context.Context, id string, send func(context.Context) error) bool {
	tries := 0
	err := c.ask(ctx, "create "+id, func(ctx context.Context) error {
		tries++
		c.world.record.Ask(id, checker.Create)
		return send(ctx)
	})
	if err == nil {
		c.world.record.Accepted(id, checker.Create)
	}
	return err == nil || errors.Is(err, raw.ErrSandboxIDAlreadyExists) && tries > 1
}

func (c *client) operate(ctx context.Context, box *follower, op checker.Operation) {
	id := box.id
	err := c.ask(ctx, string(op)+" "+id, func(ctx context.Context) (err error) {
		c.world.record.Ask(id, op)
		switch op {
		case checker.Stop:
			_, err = c.world.client.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id})
		case checker.Resume:
			_, err = c.world.client.ResumeSandbox(ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
		case checker.Delete:
			_, err = c.world.client.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id})
		case checker.Pause:
			_, err = c.world.client.PauseSandbox(ctx, &agboxv1.PauseSandboxRequest{SandboxId: id})
		case checker.Unpause:
			_, err = c.world.client.UnpauseSandbox(ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: id})
		case checker.Drain:
			_, err = c.world.client.DrainSandbox(ctx, &agboxv1.DrainSandboxRequest{SandboxId: id})
		}
		return err
	})
	if err == nil {
		c.world.record.Accepted(id, op)
		// Its end is a step of its own; what it begins with is told at once.
		last := box.current().last
		box.await(ctx, func(v view) bool {
			return v.last > last || v.busy || v.state == agboxv1.SandboxState_SANDBOX_STATE_DELETED
		})
	}
}

// exec runs a command whose outcome is known beforehand: it counts on both streams, rests in between, and exits.
func (c *client) exec(ctx context.Context, box *follower) {
	c.execs++
	id := fmt.Sprintf("%s-x%d", box.id, c.execs)
	first, second := c.random.IntN(500), c.random.IntN(3000)
	pause := time.Duration(c.random.ExpFloat64() * float64(150*time.Millisecond))
	want := checker.Want{
		ExitCode: int32(c.random.IntN(126)), Stdout: checker.Lines(first + second), Stderr: checker.Lines(c.random.IntN(50)),
	}
	script := fmt.Sprintf("seq 1 %d; sleep %.3f; seq %d %d; seq 1 %d >&2; exit %d",
		first, min(pause, 2*time.Second).Seconds(), first+1, first+second, want.Stderr, want.ExitCode)
	if c.dir == layered {
		script = "echo mine >>" + layered + "/file; " + script
	}
	c.world.record.AskExec(box.id, id, want)
	err := c.ask(ctx, "exec "+id, func(ctx context.Context) error {
		_, err := c.world.client.CreateExec(ctx, &agboxv1.CreateExecRequest{
			SandboxId: box.id, ExecId: id, Command: []string{"sh", "-c", script},
		})
		return err
	})
	if err == nil {
		c.world.record.AcceptedExec(box.id, id)
	}
	if wait := c.random.Float64() < 0.5; wait && err == nil {
		box.await(ctx, func(v view) bool {
			return v.ended[id] || v.state != agboxv1.SandboxState_SANDBOX_STATE_READY
		})
	}
}

func (c *client) cancel(ctx context.Context, box *follower, v view) {
	var running []string
	for id := range v.running {
		running = append(running, id)
	}
	if len(running) == 0 {
		return
	}
	slices.Sort(running)
	id := running[c.random.IntN(len(running))]
	c.world.record.AskCancel(box.id, id)
	c.ask(ctx, "cancel "+id, func(ctx context.Context) error {
		_, err := c.world.client.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: id})
		return err
	})
}

// look subscribes anew, from somewhere in the past, and reads what there was.
func (c *client) look(ctx context.Context, box *follower, v view) {
	if v.last == 0 {
		return
	}
	from := c.random.Uint64N(v.last)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	stream, err := c.world.client.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: box.id, FromSequence: from})
	if err != nil {
		return
	}
	defer stream.Close()
	told := c.world.record.Stream(box.id, from)
	for {
		event, err := stream.Recv()
		if err != nil {
			return
		}
		if told.Add(event); event.Sequence >= v.last {
			return
		}
	}
}
