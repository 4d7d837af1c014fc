package access

import (
	"context"
	"path"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// requestIDKey is the metadata by which a client says that a request may be a repetition. Nothing else of it is passed on.
const requestIDKey = "agbox-request-id"

// Conn is the daemon as the identity may use it: each request is looked at, bounded or refused before the daemon sees it, by
// the table in rules.go, and what an answer tells of the daemon's host is left out. It is safe for concurrent use.
func (a *Access) Conn(id Identity) grpc.ClientConnInterface { return &conn{a, id} }

type conn struct {
	*Access
	id Identity
}

var _ grpc.ClientConnInterface = (*conn)(nil)

// call is one call of an identity.
type call struct {
	*conn
	ctx     context.Context
	name    string
	rule    rule
	about   []any // what the record says it was about
	release func()
	started time.Time
}

func (c *conn) admit(ctx context.Context, method string) (*call, error) {
	in := &call{conn: c, ctx: ctx, name: path.Base(method), release: func() {}, started: time.Now()}
	rule, known := rules[in.name]
	if method != "/"+agboxv1.SandboxService_ServiceDesc.ServiceName+"/"+in.name || !known {
		return in, Refusal(codes.Unimplemented, ReasonForbidden, "the gateway does not know the call "+in.name)
	}
	in.rule = rule
	if limiter := c.limit(c.id); limiter != nil {
		if wait := limiter.Reserve(); wait.Delay() > 0 {
			delay := wait.Delay()
			wait.Cancel()
			return in, refusal(codes.ResourceExhausted, ReasonRate, "your token makes too many calls at once: try again in "+delay.Round(time.Millisecond).String(), delay)
		}
	}
	if rule.grant != "" && !c.id.May(rule.grant) {
		return in, forbidden("", rule.grant)
	}
	return in, nil
}

// outgoing is the context of the call to the daemon.
func (c *call) outgoing() context.Context {
	given, _ := metadata.FromOutgoingContext(c.ctx)
	kept := metadata.MD{}
	for _, id := range given.Get(requestIDKey) {
		if id != "" { // another token's must not repeat this one's
			kept.Set(requestIDKey, c.id.Name+"/"+id)
		}
	}
	return metadata.NewOutgoingContext(c.ctx, kept)
}

// Invoke implements grpc.ClientConnInterface.
func (c *conn) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) (err error) {
	in, err := c.admit(ctx, method)
	defer func() { in.record(err) }()
	if err != nil {
		return err
	}
	message := proto.Clone(request.(proto.Message))
	if err := in.check(message); err != nil {
		return err
	}
	defer in.release()
	if in.rule.answer != nil {
		if done, err := in.rule.answer(in, message, reply.(proto.Message)); done || err != nil {
			return err
		}
	}
	if err := c.daemon.Invoke(in.outgoing(), method, message, reply, opts...); err != nil {
		return unreached(err)
	}
	in.conceal(reply)
	return nil
}

func (c *call) check(message proto.Message) error {
	if c.rule.request == nil {
		return nil
	}
	return unreached(c.rule.request(c, message))
}

// NewStream implements grpc.ClientConnInterface.
func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	in, err := c.admit(ctx, method)
	if err != nil {
		in.record(err)
		return nil, err
	}
	under, cancel := context.WithCancel(in.outgoing())
	stream, err := c.daemon.NewStream(under, desc, method, opts...)
	if err != nil {
		cancel()
		in.record(err)
		return nil, unreached(err)
	}
	return &boundStream{ClientStream: stream, call: in, cancel: cancel, under: under}, nil
}

// boundStream looks at each message on its way. The first one tells what the call is about.
type boundStream struct {
	grpc.ClientStream
	call   *call
	cancel context.CancelFunc // ends it, and with it what it had reserved
	under  context.Context
	begun  bool
	// refused is why a message did not pass.
	refused atomic.Pointer[error]
}

func (s *boundStream) SendMsg(m any) error {
	message := m.(proto.Message)
	if s.begun && named(message) == nil {
		return s.ClientStream.SendMsg(m)
	}
	message = proto.Clone(message)
	if err := s.call.check(message); err != nil {
		s.refused.Store(&err)
		s.cancel()
		s.call.record(err)
		return err
	}
	if !s.begun {
		s.begun = true
		context.AfterFunc(s.under, s.call.release)
		s.call.record(nil)
	}
	return s.ClientStream.SendMsg(message)
}

func (s *boundStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		s.cancel()
		if refused := s.refused.Load(); refused != nil {
			return *refused
		}
		return unreached(err)
	}
	s.call.conceal(m)
	return nil
}

// record writes the call down where it changes something, or was refused.
func (c *call) record(err error) {
	code := status.Code(err)
	if err == nil && !c.rule.change || err != nil && !c.rule.change && code != codes.PermissionDenied && code != codes.NotFound && code != codes.ResourceExhausted && code != codes.Unimplemented {
		return
	}
	fields := append([]any{"token", c.id.Name, "call", c.name, "outcome", code.String(), "took", time.Since(c.started)}, c.about...)
	if peer, ok := peerOf(c.ctx); ok {
		fields = append(fields, "from", peer)
	}
	if err != nil {
		fields = append(fields, "reason", reasonOf(err))
	}
	c.log.Info("call", fields...)
}
