package server

import (
	"errors"
	"io"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/output"
)

// Backup sends a copy that was made before the first byte goes out: a slow client holds up nobody.
func (s *Server) Backup(_ *agboxv1.BackupRequest, stream grpc.ServerStreamingServer[agboxv1.BackupChunk]) error {
	spool, err := s.db.Spool()
	if err != nil {
		return err
	}
	defer spool.Close()
	for {
		chunk := make([]byte, output.MaxChunk)
		n, err := spool.Read(chunk)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&agboxv1.BackupChunk{Data: chunk[:n]}); err != nil {
			return err
		}
	}
}
