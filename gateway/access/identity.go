// Package access is who may do what through the gateway: tokens, what each of them sees and may ask for, quotas, and the record
// of what was asked. There is one way through it to the daemon, Conn, whatever language the client speaks.
package access

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Grant is something that a token may ask for only when it says so.
type Grant string

const (
	// GrantMounts: files of the daemon's host, live or copied, and builtin tools, which are such.
	GrantMounts Grant = "mounts"
	// GrantPorts: ports published on the daemon's host.
	GrantPorts Grant = "ports"
	GrantGPUs  Grant = "gpus"
	// GrantCapabilities: capabilities beside the default ones.
	GrantCapabilities Grant = "capabilities"
	// GrantNetwork: private addresses, such as those of the host's own network.
	GrantNetwork Grant = "private-network"
	// GrantRuntime: another of the engine's runtimes.
	GrantRuntime Grant = "runtime"
	// GrantOperator: calls that are about the daemon as a whole, and paths on its host.
	GrantOperator Grant = "operator"
)

// Grants are all that there are.
var Grants = []Grant{GrantMounts, GrantPorts, GrantGPUs, GrantCapabilities, GrantNetwork, GrantRuntime, GrantOperator}

// Quota bounds what the sandboxes of a token are together; a zero is no bound. All count that are not DELETED.
type Quota struct {
	Sandboxes int     `json:"sandboxes,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	// Memory is in bytes.
	Memory    int64 `json:"memory,omitempty"`
	Snapshots int   `json:"snapshots,omitempty"`
}

// Identity is who asks, and what it may. It is not changed once it is made.
type Identity struct {
	// Name is the token's, for the record.
	Name string
	// Labels are on all that it makes, and on all that it sees.
	Labels map[string]string
	// Sandbox, unless "", is the only one that it sees; it can make none.
	Sandbox string
	Quota   Quota
	// Rate is calls a second; 0: as many as it likes.
	Rate   float64
	Grants []Grant
	// Expires is zero for never.
	Expires time.Time
}

// LabelScope is on each snapshot that was made through the gateway: the Scope of who made it. Clients' own values are not kept.
const LabelScope = "gateway/scope"

// Scope names the labels that the identity is bound to, "" for none.
func (i Identity) Scope() string {
	var pairs []string
	for key, value := range i.Labels {
		pairs = append(pairs, url.QueryEscape(key)+"="+url.QueryEscape(value))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// signed returns the labels with LabelScope.
func (i Identity) signed(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	delete(labels, LabelScope)
	if scope := i.Scope(); scope != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[LabelScope] = scope
	}
	return labels
}

// May reports whether the grant was given.
func (i Identity) May(g Grant) bool { return slices.Contains(i.Grants, g) }

// ForSandbox is the identity of who has shown that it may use one sandbox, and nothing else.
func ForSandbox(id string) Identity { return Identity{Name: "sandbox " + id, Sandbox: id} }

type identityKey struct{}

// With returns a context in which FromContext finds the identity.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// FromContext returns who has made the request.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}
