package access

import (
	"context"
	"maps"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// maxPlaces is how many ids are remembered of each kind, and as many older ones.
const maxPlaces = 10_000

// places remember what never changes: a sandbox's labels, and the sandbox of an exec. Ids are never used twice.
type places struct {
	labels remembered[map[string]string]
	execs  remembered[string]
}

// remembered is a map that forgets what it has not been asked for in a while.
type remembered[V any] struct {
	mu         sync.Mutex
	young, old map[string]V
}

func (r *remembered[V]) get(id string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.young[id]; ok {
		return v, true
	}
	v, ok := r.old[id]
	if ok {
		r.put(id, v)
	}
	return v, ok
}

func (r *remembered[V]) add(id string, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(id, v)
}

func (r *remembered[V]) put(id string, v V) {
	if r.young == nil || len(r.young) >= maxPlaces {
		r.young, r.old = map[string]V{}, r.young
	}
	r.young[id] = v
}

// bounded reports whether there is anything that the identity does not see.
func (i Identity) bounded() bool { return i.Sandbox != "" || len(i.Labels) > 0 }

// covers reports whether something with these labels is the identity's.
func (i Identity) covers(labels map[string]string) bool {
	for key, value := range i.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// ownsSandbox fails as the daemon does for a sandbox that is not there, where it is not the identity's.
func (c *conn) ownsSandbox(ctx context.Context, id string) error {
	switch {
	case !c.id.bounded():
		return nil
	case c.id.Sandbox != "":
		if id != c.id.Sandbox {
			return noSandbox(id)
		}
		return nil
	}
	labels, known := c.places.labels.get(id)
	if !known {
		response, err := agboxv1.NewSandboxServiceClient(c.daemon).GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil {
			return err
		}
		labels = maps.Clone(response.GetSandbox().GetLabels())
		c.places.labels.add(id, labels)
	}
	if !c.id.covers(labels) {
		return noSandbox(id)
	}
	return nil
}

func (c *conn) ownsExec(ctx context.Context, id string) error {
	if !c.id.bounded() {
		return nil
	}
	sandbox, known := c.places.execs.get(id)
	if !known {
		response, err := agboxv1.NewSandboxServiceClient(c.daemon).GetExec(ctx, &agboxv1.GetExecRequest{ExecId: id})
		if err != nil {
			return err
		}
		sandbox = response.GetExec().GetSandboxId()
		c.places.execs.add(id, sandbox)
	}
	err := c.ownsSandbox(ctx, sandbox)
	if status.Code(err) == codes.NotFound {
		return noExec(id)
	}
	return err
}

// ownSnapshot returns a snapshot of the identity's.
func (c *conn) ownSnapshot(ctx context.Context, id string) (*agboxv1.Snapshot, error) {
	response, err := agboxv1.NewSandboxServiceClient(c.daemon).ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{LabelSelector: c.id.Labels})
	if err != nil {
		return nil, err
	}
	for _, snapshot := range response.GetSnapshots() {
		if snapshot.GetSnapshotId() == id {
			return snapshot, nil
		}
	}
	return nil, noSnapshot(id)
}
