package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

const maxForks = 100

type forkResult struct {
	Sandbox *sandboxAnswer `json:"sandbox,omitempty"`
	Error   *problem       `json:"error,omitempty"`
}

// fork makes sandboxes of what a running one is now, one after the other: each stands for itself, and so does its failure. Their files
// are the other one's, their processes are not.
func (c *call) fork() (int, any, error) {
	var request struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	life, err := timeoutOf(request.Timeout, defaultTimeoutV1)
	if err != nil {
		return 0, nil, err
	}
	count := 1
	if request.Count != nil {
		count = *request.Count
	}
	switch {
	case count < 1:
		return 0, nil, refused(http.StatusBadRequest, "Count must be at least 1")
	case count > maxForks:
		return 0, nil, refused(http.StatusBadRequest, "Count must be at most %d", maxForks)
	}
	b, err := c.box()
	if err != nil {
		return 0, nil, err
	}
	if b.state != running {
		return 0, nil, refused(http.StatusConflict, "sandbox %q is paused: connect to it first", b.ID)
	}
	results := make([]forkResult, count)
	for i := range results {
		made, err := c.forkOne(b, life)
		if err != nil {
			results[i].Error = problemOf(err)
			continue
		}
		answer := c.answer(made)
		results[i].Sandbox = &answer
	}
	return http.StatusCreated, results, nil
}

func (c *call) forkOne(b box, life time.Duration) (box, error) {
	n := b.note
	n.Timeout = int64(life / time.Second)
	labels, err := n.labels(b.note.metadata(b.Labels))
	if err != nil {
		return box{}, err
	}
	id := newID('i')
	spec := sdk.Spec{Labels: labels, Env: environment(id, n.Template), IdleTTL: sdk.NeverIdle, MaxDuration: life, OnExpiry: n.onExpiry()}
	return c.make(id, func(ctx context.Context) (sdk.Sandbox, error) {
		return c.client.Fork(ctx, b.ID, spec, sdk.WithSandboxID(id))
	})
}
