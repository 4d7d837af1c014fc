package fleet

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // which it stands on
	"google.golang.org/grpc/mem"
)

// encodedEvent is a SandboxEvent that a stream sends as it is kept, with what only its reader is told behind it.
type encodedEvent struct {
	data   []byte // many streams send it
	replay bool
}

// replayField is SandboxEvent.replay, true. Fields of a message may come in any order.
var replayField = mem.SliceBuffer{6 << 3, 1}

// Codec is gRPC's own, but for events that were encoded when they were recorded. A server that offers subscriptions needs it.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	event, ok := v.(*encodedEvent)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data := mem.BufferSlice{mem.SliceBuffer(event.data)}
	if event.replay {
		data = append(data, replayField)
	}
	return data, nil
}
