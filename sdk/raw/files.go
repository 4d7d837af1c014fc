package raw

import (
	"context"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// uploadChunk is how many bytes of a tar stream one message has.
const uploadChunk = 64 << 10

// UploadFiles sends start and then the tar stream, to its end. It returns when all is unpacked, or as soon as the daemon
// refuses; what stream fails with is returned as it is.
func (c *Client) UploadFiles(ctx context.Context, start *agboxv1.UploadFilesStart, stream io.Reader) (*agboxv1.UploadFilesResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // lets go of a stream that was not read to its end
	upload, err := c.rpc.UploadFiles(ctx)
	if err != nil {
		return nil, c.typed(err)
	}
	err = upload.Send(&agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Start{Start: start}})
	for buffer := make([]byte, uploadChunk); err == nil; {
		n, readErr := stream.Read(buffer)
		if n > 0 {
			err = upload.Send(&agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Data{Data: buffer[:n]}})
		}
		if readErr == io.EOF {
			break
		} else if readErr != nil {
			return nil, readErr
		}
	}
	// io.EOF of Send means that the daemon has answered already.
	response, err := upload.CloseAndRecv()
	return response, c.typed(err)
}

// DownloadStream is one tar stream from a sandbox, an io.ReadCloser. Read belongs to one goroutine; Close may be called from any.
type DownloadStream struct {
	chunks *Receiver[agboxv1.DownloadFilesChunk]
	rest   []byte
}

// DownloadFiles opens a tar stream that lives as long as ctx, at most. What the daemon refuses, the first Read tells. Close
// must follow.
func (c *Client) DownloadFiles(ctx context.Context, req *agboxv1.DownloadFilesRequest) (*DownloadStream, error) {
	chunks, err := receive(ctx, c, req, c.rpc.DownloadFiles)
	if err != nil {
		return nil, err
	}
	return &DownloadStream{chunks: chunks}, nil
}

// Read fails with io.EOF when all was sent, else with an *Error.
func (s *DownloadStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		chunk, err := s.chunks.Recv()
		if err != nil {
			return 0, err
		}
		s.rest = chunk.GetData()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the stream and lets a blocked Read return. It may be called more than once.
func (s *DownloadStream) Close() error {
	s.chunks.Close()
	return nil
}

// StatFile tells of one file.
func (c *Client) StatFile(ctx context.Context, req *agboxv1.StatFileRequest) (*agboxv1.StatFileResponse, error) {
	return c.rpc.StatFile(ctx, req)
}

// ListFiles tells what is in a directory.
func (c *Client) ListFiles(ctx context.Context, req *agboxv1.ListFilesRequest) (*agboxv1.ListFilesResponse, error) {
	return c.rpc.ListFiles(ctx, req)
}

// RemoveFile returns when it is removed.
func (c *Client) RemoveFile(ctx context.Context, req *agboxv1.RemoveFileRequest) (*agboxv1.RemoveFileResponse, error) {
	return c.rpc.RemoveFile(ctx, req)
}

// WatchFiles opens a watch that lives as long as ctx, at most. What the daemon refuses, the first Recv tells. Close must
// follow.
func (c *Client) WatchFiles(ctx context.Context, req *agboxv1.WatchFilesRequest) (*FileEvents, error) {
	return receive(ctx, c, req, c.rpc.WatchFiles)
}
