package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// unread is a stream to a client that reads nothing, until it has gone.
type unread struct {
	grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]
	gone chan struct{}
}

func (u *unread) Send(*agboxv1.DownloadFilesChunk) error {
	<-u.gone
	return errors.New("the call has ended")
}

// TestUnreadIsCutOff: a client that does not read is no longer waited for after a minute, so that what others wait for is free.
func TestUnreadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		stream := &unread{gone: make(chan struct{})}
		ctx, send, end := paced(s, t.Context(), stream)
		if err := send(&agboxv1.DownloadFilesChunk{}); !errors.Is(err, errStalled) || !errors.Is(context.Cause(ctx), errStalled) {
			t.Errorf("the first is answered with %v", err)
		}
		if err := send(&agboxv1.DownloadFilesChunk{}); !errors.Is(err, errStalled) {
			t.Errorf("the next is answered with %v", err)
		}
		end()
		close(stream.gone) // with the handler
		s.apart.Wait()
	})
}
