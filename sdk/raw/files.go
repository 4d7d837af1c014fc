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
	upload, err := c.SandboxServiceClient.UploadFiles(ctx)
	if err != nil {
		return nil, err
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
	return upload.CloseAndRecv()
}

// DownloadStream is one tar stream from a sandbox. What the daemon refuses, the first Read tells; it fails with io.EOF when
// all was sent, else with an *Error. Read belongs to one goroutine; Close must follow, and may be called from any.
type DownloadStream struct {
	chunks *Receiver[agboxv1.DownloadFilesChunk]
	rest   []byte
}

func download(chunks *Receiver[agboxv1.DownloadFilesChunk], err error) (*DownloadStream, error) {
	if err != nil {
		return nil, err
	}
	return &DownloadStream{chunks: chunks}, nil
}

// DownloadFiles opens a stream of a file or directory, that lives as long as ctx, at most.
func (c *Client) DownloadFiles(ctx context.Context, req *agboxv1.DownloadFilesRequest) (*DownloadStream, error) {
	return download(receive(ctx, req, c.SandboxServiceClient.DownloadFiles))
}

// DownloadChanges opens a stream of what a sandbox changed, that lives as long as ctx, at most.
func (c *Client) DownloadChanges(ctx context.Context, req *agboxv1.DownloadChangesRequest) (*DownloadStream, error) {
	return download(receive(ctx, req, c.SandboxServiceClient.DownloadChanges))
}

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

// WriteFile sends start and then the file's bytes, to their end. It returns when the file is written, or as soon as the daemon refuses; what
// content fails with is returned as it is.
func (c *Client) WriteFile(ctx context.Context, start *agboxv1.WriteFileStart, content io.Reader) (*agboxv1.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // lets go of a file that was not read to its end
	put, err := c.SandboxServiceClient.WriteFile(ctx)
	if err != nil {
		return nil, err
	}
	err = put.Send(&agboxv1.WriteFileRequest{Message: &agboxv1.WriteFileRequest_Start{Start: start}})
	for buffer := make([]byte, uploadChunk); err == nil; {
		n, readErr := content.Read(buffer)
		if n > 0 {
			err = put.Send(&agboxv1.WriteFileRequest{Message: &agboxv1.WriteFileRequest_Data{Data: buffer[:n]}})
		}
		if readErr == io.EOF {
			break
		} else if readErr != nil {
			return nil, readErr
		}
	}
	written, err := put.CloseAndRecv() // io.EOF of Send means that the daemon has answered already
	return written.GetFile(), err
}

// FileStream is one file as it is read. Read fails with io.EOF at its end, else with an *Error; it belongs to one goroutine. Close must follow,
// and may be called from any.
type FileStream struct {
	// Info is what the file was when it was opened.
	Info   *agboxv1.FileInfo
	chunks *Receiver[agboxv1.ReadFileChunk]
	rest   []byte
}

// ReadFile opens a file, and fails where the daemon refuses that. The stream lives as long as ctx, at most.
func (c *Client) ReadFile(ctx context.Context, req *agboxv1.ReadFileRequest) (*FileStream, error) {
	chunks, err := receive(ctx, req, c.SandboxServiceClient.ReadFile)
	if err != nil {
		return nil, err
	}
	first, err := chunks.Recv()
	if err != nil {
		chunks.Close()
		return nil, err
	}
	return &FileStream{Info: first.GetFile(), chunks: chunks, rest: first.GetData()}, nil
}

func (s *FileStream) Read(p []byte) (int, error) {
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
func (s *FileStream) Close() error {
	s.chunks.Close()
	return nil
}
