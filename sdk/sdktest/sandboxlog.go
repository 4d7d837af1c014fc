package sdktest

import (
	"fmt"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// ReadSandboxLog has the types of the sandbox's events, one a line, as its story. What has run in the sandbox has written
// who it is to each stream; every service is there, but none that is called "none".
func (d *Daemon) ReadSandboxLog(req *agboxv1.ReadSandboxLogRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxLogChunk]) error {
	sent := ""
	for {
		d.mu.Lock()
		changed := d.changed
		s, err := d.find("ReadSandboxLog", req.GetSandboxId())
		if err != nil {
			d.mu.Unlock()
			return err
		}
		story, gone := &strings.Builder{}, false
		for _, event := range s.events {
			fmt.Fprintln(story, event.GetEventType())
			gone = event.GetEventType() == agboxv1.EventType_SANDBOX_DELETED
		}
		d.mu.Unlock()
		switch req.GetSource() {
		case "", "story":
		case "service":
			if req.GetServiceName() == "none" {
				return Refusal(codes.NotFound, "SERVICE_NOT_FOUND", "service_name: there is no service none", "field", "service_name")
			}
			for _, name := range []string{"stdout", "stderr"} {
				data := []byte(name + " of " + req.GetServiceName() + "\n")
				if err := stream.Send(&agboxv1.SandboxLogChunk{Stream: name, Data: data}); err != nil {
					return err
				}
			}
			return nil
		default:
			return stream.Send(&agboxv1.SandboxLogChunk{Data: []byte(req.GetSource() + " of " + req.GetSandboxId() + "\n")})
		}
		text := story.String()
		if req.TailBytes != nil && sent == "" {
			sent = text[:len(text)-min(int(req.GetTailBytes()), len(text))]
		}
		if err := stream.Send(&agboxv1.SandboxLogChunk{Data: []byte(text[len(sent):])}); err != nil {
			return err
		}
		sent = text
		if gone || !req.GetFollow() {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
