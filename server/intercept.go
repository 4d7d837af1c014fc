package server

import (
	"context"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/agbox-dev/agbox/server/refusal"
)

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (response any, err error) {
	defer func() { err = s.answer(err, idsOf(req)) }()
	defer s.recovered(info.FullMethod, &err)
	if size := proto.Size(req.(proto.Message)); size > refusal.MaxRequest {
		return nil, refusal.New(codes.ResourceExhausted, refusal.ReasonTooLarge, "",
			"the request has %d bytes, which is more than %d: move what is large into files and mount these", size, refusal.MaxRequest)
	}
	if err := validRequestID(ctx); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx, end := s.whileServing(stream.Context())
	defer end()
	of := &call{ServerStream: stream, ctx: ctx}
	defer func() {
		if err != nil {
			err = because(ctx, err)
		}
		err = s.answer(err, idsOf(of.first.Load()))
	}()
	defer s.recovered(info.FullMethod, &err)
	if carrying[info.FullMethod] {
		end, err := s.carried.begin(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	return next(srv, of)
}

// whileServing returns a context that ends at shutdown, too, and then says so as its cause. end has to be called.
func (s *Server) whileServing(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })
	return ctx, func() { forget(); cancel(nil) }
}

// call is a stream whose context ends with the server.
type call struct {
	grpc.ServerStream
	ctx context.Context
	// first is the message that was received first, which names what the call is about.
	first atomic.Value
}

func (c *call) Context() context.Context { return c.ctx }

func (c *call) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err == nil && c.first.Load() == nil {
		c.first.Store(m)
	}
	return err
}

// idsOf are the ids that a request names, by field; none where it is nil.
func idsOf(req any) map[string]string {
	ids := map[string]string{}
	message, ok := req.(proto.Message)
	if !ok {
		return ids
	}
	message.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == "start":
			maps.Copy(ids, idsOf(value.Message().Interface()))
		case field.Kind() == protoreflect.StringKind && !field.IsList() && strings.HasSuffix(string(field.Name()), "_id"):
			ids[string(field.Name())] = value.String()
		}
		return true
	})
	return ids
}

// recovered keeps a defect in one call from ending the daemon.
func (s *Server) recovered(method string, err *error) {
	if reason := recover(); reason != nil {
		s.log.Error("call panicked", slog.String("method", method), slog.Any("reason", reason),
			slog.String("stack", string(debug.Stack())))
		*err = refusal.New(codes.Internal, reasonInternal, "", "agboxd failed in %s: see its log", method)
	}
}

// because is why ctx has ended, and err where it has not.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
