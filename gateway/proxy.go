package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// maxRequest bounds one message of a client: twice what the daemon takes, which says so itself then.
const maxRequest = 8 << 20

// refusedKey holds why a request of gRPC is let in no further.
type refusedKey struct{}

// serveGRPC serves the daemon's service, gRPC health and reflection to who shows a token.
func (g *Gateway) serveGRPC(w http.ResponseWriter, r *http.Request) {
	ctx, err := g.identified(r)
	if err != nil {
		code := codes.Unauthenticated
		if !errors.Is(err, access.ErrNoToken) && !errors.Is(err, access.ErrToken) {
			code = codes.Unavailable
		}
		ctx = context.WithValue(r.Context(), refusedKey{}, access.Refusal(code, access.ReasonToken, "the gateway lets you in with a token only (AGBOX_TOKEN): "+err.Error()))
	}
	g.grpc.ServeHTTP(w, r.WithContext(ctx))
}

// proxy passes calls on to the daemon as the caller's identity may make them.
type proxy struct {
	access  *access.Access
	methods map[string]method
	// apart is what receives from clients apart from the handler of their call, and ends with it.
	apart sync.WaitGroup
	*grpc.Server
}

// method is one call of the service.
type method struct {
	desc           *grpc.StreamDesc
	request, reply protoreflect.MessageType
}

func newProxy(decides *access.Access) *proxy {
	p := &proxy{access: decides, methods: map[string]method{}}
	service := agboxv1.File_agbox_v1_agbox_proto.Services().ByName("SandboxService")
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		request, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		reply, replyErr := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if errors.Join(err, replyErr) != nil {
			continue // not generated: the call stays unknown
		}
		p.methods["/"+string(service.FullName())+"/"+string(m.Name())] = method{&grpc.StreamDesc{
			StreamName: string(m.Name()), ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, request, reply}
	}
	let := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if refused, ok := stream.Context().Value(refusedKey{}).(error); ok {
			return refused
		}
		return next(srv, stream)
	}
	p.Server = grpc.NewServer(grpc.UnknownServiceHandler(p.serve), grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxReply),
		grpc.StreamInterceptor(let), grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if refused, ok := ctx.Value(refusedKey{}).(error); ok {
				return nil, refused
			}
			return next(ctx, request)
		}))
	checks := health.NewServer()
	checks.SetServingStatus(agboxv1.SandboxService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(p.Server, checks)
	reflection.Register(p.Server)
	return p
}

// maxReply is as large as clients take: lists come in one message.
const maxReply = 256 << 20

func (p *proxy) serve(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	called, known := p.methods[name]
	if !known {
		return access.Refusal(codes.Unimplemented, access.ReasonForbidden, "the gateway does not know the call "+name)
	}
	ctx := stream.Context()
	id, ok := access.FromContext(ctx)
	if !ok {
		return access.Refusal(codes.Unauthenticated, access.ReasonToken, access.ErrNoToken.Error())
	}
	given, _ := metadata.FromIncomingContext(ctx)
	ctx = metadata.NewOutgoingContext(ctx, given) // Conn keeps of it what it passes on
	conn := p.access.Conn(id)
	if called.desc.ServerStreams || called.desc.ClientStreams {
		return p.pump(ctx, conn, name, called, stream)
	}
	request, reply := called.request.New().Interface(), called.reply.New().Interface()
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	if err := conn.Invoke(ctx, name, request, reply); err != nil {
		return err
	}
	return stream.SendMsg(reply)
}

// pump carries a stream's messages both ways, until the daemon has answered.
func (p *proxy) pump(ctx context.Context, conn grpc.ClientConnInterface, name string, called method, client grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	daemon, err := conn.NewStream(ctx, called.desc, name)
	if err != nil {
		cancel()
		return err
	}
	defer cancel()
	if !called.desc.ClientStreams {
		if err := send(client, daemon, called.request); err != nil {
			return err
		}
		return receive(daemon, client, called.reply)
	}
	p.apart.Go(func() {
		if send(client, daemon, called.request) != nil {
			cancel()
		}
	})
	return receive(daemon, client, called.reply)
}

// send passes on what the client sends, to its end. That the daemon has answered already, or what was refused, receive tells.
func send(client grpc.ServerStream, daemon grpc.ClientStream, request protoreflect.MessageType) error {
	for {
		message := request.New().Interface()
		if err := client.RecvMsg(message); errors.Is(err, io.EOF) {
			return daemon.CloseSend()
		} else if err != nil {
			return err
		}
		if err := daemon.SendMsg(message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func receive(daemon grpc.ClientStream, client grpc.ServerStream, reply protoreflect.MessageType) error {
	if _, err := daemon.Header(); err == nil { // clients wait for it to know that the stream has begun
		if err := client.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	for {
		message := reply.New().Interface()
		if err := daemon.RecvMsg(message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := client.SendMsg(proto.Message(message)); err != nil {
			return err
		}
	}
}
