package servertest

import agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"

// States of a sandbox, in short.
const (
	Pending = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	Ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
	Failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	Stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	Deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	Dormant = agboxv1.SandboxState_SANDBOX_STATE_DORMANT
)
