package access

import (
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// rule is what is done with one call.
type rule struct {
	// change: it is recorded.
	change bool
	// grant is what a token needs for it; "" is nothing.
	grant Grant
	// request checks a message on its way to the daemon, and bounds it in place. nil: there is nothing in it that matters.
	request func(*call, proto.Message) error
	// answer answers in the daemon's place, if it reports that it did.
	answer func(c *call, request, reply proto.Message) (bool, error)
}

// rules has a row for each call of the service; one that has none is refused. A call about one sandbox, exec or snapshot names
// it and has to be about the identity's own; one about many is narrowed to those by its label selector.
var rules = map[string]rule{
	"Ping":        {},
	"Info":        {grant: GrantOperator},
	"Doctor":      {grant: GrantOperator},
	"ReadMetrics": {grant: GrantOperator},
	"Backup":      {grant: GrantOperator, change: true},
	"Prune":       {grant: GrantOperator, change: true, request: aboutMany},

	"CreateSandbox": {change: true, request: creates},
	"ForkSandbox":   {change: true, request: forks},

	"GetSandbox":             {request: aboutSandbox},
	"ResumeSandbox":          {change: true, request: aboutSandbox},
	"StopSandbox":            {change: true, request: aboutSandbox},
	"DeleteSandbox":          {change: true, request: aboutSandbox},
	"PauseSandbox":           {change: true, request: aboutSandbox},
	"UnpauseSandbox":         {change: true, request: aboutSandbox},
	"DrainSandbox":           {change: true, request: aboutSandbox},
	"ExtendSandbox":          {change: true, request: aboutSandbox},
	"DetachSandbox":          {change: true, request: aboutSandbox},
	"HoldSandbox":            {change: true, request: aboutSandbox},
	"WaitSandbox":            {request: aboutSandbox},
	"SubscribeSandboxEvents": {request: aboutSandbox},
	"GetStats":               {request: aboutSandbox},
	"ReadSandboxLog":         {request: aboutSandbox},
	"SandboxChanges":         {request: aboutSandbox},
	"DownloadChanges":        {request: aboutSandbox},
	"UploadFiles":            {change: true, request: aboutSandbox},
	"DownloadFiles":          {request: aboutSandbox},
	"StatFile":               {request: aboutSandbox},
	"ListFiles":              {request: aboutSandbox},
	"RemoveFile":             {change: true, request: aboutSandbox},
	"WatchFiles":             {request: aboutSandbox},
	"ReadFile":               {request: aboutSandbox},
	"DialPort":               {change: true, request: aboutSandbox},
	"WriteFile":              {change: true, request: aboutSandbox},
	"MakeDirectory":          {change: true, request: aboutSandbox},
	"MoveFile":               {change: true, request: aboutSandbox},
	"CreateExec":             {change: true, request: aboutSandbox},

	"ListSandboxes":   {request: aboutMany},
	"WatchSandboxes":  {request: aboutMany},
	"WatchStats":      {request: aboutMany},
	"DeleteSandboxes": {change: true, request: aboutNamed},
	"StopSandboxes":   {change: true, request: aboutNamed},
	"ResumeSandboxes": {change: true, request: aboutNamed},

	"CancelExec":      {change: true, request: aboutExec},
	"SignalExec":      {change: true, request: aboutExec},
	"GetExec":         {request: aboutExec},
	"WaitExec":        {request: aboutExec},
	"ReadExecLog":     {request: aboutExec},
	"AttachExec":      {change: true, request: aboutExec},
	"ListExecs":       {request: aboutSandboxOrAll, answer: listExecs},
	"ListActiveExecs": {request: aboutSandboxOrAll, answer: listActiveExecs},

	"SnapshotSandbox": {change: true, request: snapshots},
	"CaptureSandbox":  {change: true, request: snapshots},
	"ListSnapshots":   {request: aboutMany},
	"DeleteSnapshot":  {change: true, request: aboutSnapshot},
}

// named returns the part of a message that names what it is about: the message itself, or the start of a stream; nil where it
// is neither.
func named(message proto.Message) proto.Message {
	switch m := message.(type) {
	case *agboxv1.UploadFilesRequest:
		if m.GetStart() == nil {
			return nil
		}
		return m.GetStart()
	case *agboxv1.DialPortRequest:
		if m.GetSandboxId() == "" && m.GetPort() == 0 { // the first one names them
			return nil
		}
	case *agboxv1.WriteFileRequest:
		if m.GetStart() == nil {
			return nil
		}
		return m.GetStart()
	case *agboxv1.AttachExecRequest:
		if m.GetStart() == nil {
			return nil
		}
		return m.GetStart()
	}
	return message
}

func aboutSandbox(c *call, message proto.Message) error {
	of, ok := named(message).(interface{ GetSandboxId() string })
	if !ok {
		return nil // further messages of a stream
	}
	c.about = append(c.about, "sandbox_id", of.GetSandboxId())
	return c.ownsSandbox(c.ctx, of.GetSandboxId())
}

func aboutExec(c *call, message proto.Message) error {
	of, ok := named(message).(interface{ GetExecId() string })
	if !ok {
		return nil
	}
	if start, ok := of.(*agboxv1.AttachExecStart); ok && !c.id.May(GrantOperator) {
		start.OffsetsOnly = false // who is not told the files cannot read them
	}
	c.about = append(c.about, "exec_id", of.GetExecId())
	return c.ownsExec(c.ctx, of.GetExecId())
}

func aboutSnapshot(c *call, message proto.Message) error {
	id := message.(interface{ GetSnapshotId() string }).GetSnapshotId()
	c.about = append(c.about, "snapshot_id", id)
	if !c.id.bounded() {
		return nil
	}
	if err := c.makes(); err != nil {
		return err
	}
	_, err := c.ownSnapshot(c.ctx, id)
	return err
}

// aboutMany narrows a selector to the identity's labels.
func aboutMany(c *call, message proto.Message) error {
	if !c.id.bounded() {
		return nil
	}
	if err := c.makes(); err != nil {
		return err
	}
	m := message.ProtoReflect()
	field := m.Descriptor().Fields().ByName("label_selector")
	given := message.(interface{ GetLabelSelector() map[string]string }).GetLabelSelector()
	scoped, err := c.scoped("label_selector", given)
	if err != nil {
		return err
	}
	selector := m.Mutable(field).Map()
	for key, value := range scoped {
		selector.Set(protoKey(key), protoValue(value))
	}
	return nil
}

// aboutNamed is aboutMany for a call that must not be about all: what the token adds does not make it narrower.
func aboutNamed(c *call, message proto.Message) error {
	if len(message.(interface{ GetLabelSelector() map[string]string }).GetLabelSelector()) == 0 {
		return Refusal(codes.InvalidArgument, "LABEL_SELECTOR_REQUIRED",
			"label_selector: an empty selector would match every sandbox; give at least one label", "field", "label_selector")
	}
	return aboutMany(c, message)
}

// makes fails for an identity that is for one sandbox.
func (c *call) makes() error {
	if c.id.Sandbox == "" {
		return nil
	}
	return Refusal(codes.PermissionDenied, ReasonScope, "what you have shown is for sandbox "+c.id.Sandbox+" alone: use a token of the gateway")
}

// scoped returns labels with the identity's own. It refuses one that has another value of one of those.
func (c *call) scoped(field string, labels map[string]string) (map[string]string, error) {
	with := maps.Clone(labels)
	if with == nil {
		with = map[string]string{}
	}
	for key, value := range c.id.Labels {
		if other, given := with[key]; given && other != value {
			return nil, Refusal(codes.PermissionDenied, ReasonScope,
				field+": label "+key+" is "+value+" for all that your token makes and sees: leave it out", "field", field)
		}
		with[key] = value
	}
	return with, nil
}

// Rows are what the tables know: the service's calls, and the fields of messages that a create is made of.
type Rows struct {
	Calls  map[string]bool
	Fields map[protoreflect.Name]map[protoreflect.Name]bool
}

// Known returns what there is a row for. All else is refused.
func Known() Rows {
	rows := Rows{Calls: map[string]bool{}, Fields: map[protoreflect.Name]map[protoreflect.Name]bool{"CreateSpec": {}, "ServiceSpec": {}}}
	for name := range rules {
		rows.Calls[name] = true
	}
	for name := range specGrants {
		rows.Fields["CreateSpec"][name] = true
	}
	for name := range serviceGrants {
		rows.Fields["ServiceSpec"][name] = true
	}
	return rows
}
