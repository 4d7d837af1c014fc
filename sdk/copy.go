package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/pack"
)

// TransferOption changes how files are copied.
type TransferOption func(*transfer)

type transfer struct {
	owner  string
	passed func(bytes int)
}

// WithOwner has what is uploaded belong to this user, a name or number, optionally ":group"; without it, to whom an exec
// would run as.
func WithOwner(user string) TransferOption { return func(t *transfer) { t.owner = user } }

// WithPassed has a function hear of each part of the tar stream that goes to the sandbox or comes from it. It must not block.
func WithPassed(passed func(bytes int)) TransferOption {
	return func(t *transfer) { t.passed = passed }
}

// passing tells of what is read.
type passing struct {
	io.Reader
	transfer
}

func (p passing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if p.passed != nil {
		p.passed(n)
	}
	return n, err
}

func transferred(from io.Reader, opts []TransferOption) passing {
	p := passing{Reader: from}
	for _, opt := range opts {
		opt(&p.transfer)
	}
	return p
}

// Uploaded is what an upload brought: all but directories, and the bytes of files.
type Uploaded struct{ Files, Bytes uint64 }

// UploadTar unpacks a tar stream in a directory of the sandbox, which is made when it is missing. Names must be relative,
// without "..", hard links point to what came before; devices and pipes are refused. What was unpacked before an error
// stays.
func (c *Client) UploadTar(ctx context.Context, id, directory string, stream io.Reader, opts ...TransferOption) (Uploaded, error) {
	from := transferred(stream, opts)
	resp, err := c.raw.UploadFiles(ctx, &agboxv1.UploadFilesStart{SandboxId: id, Path: directory, Owner: from.owner}, from)
	return Uploaded{resp.GetFiles(), resp.GetBytes()}, err
}

// Upload copies a local file to a path in the sandbox, or into it where that is a directory or ends in "/"; of a local
// directory, the content into a directory there, which is made when it is missing. Permissions and times are kept, those of
// directories too, and links stay links. Sockets, pipes and devices make it fail, when all others are copied.
func (c *Client) Upload(ctx context.Context, id, local, target string, opts ...TransferOption) (Uploaded, error) {
	info, err := os.Stat(local)
	if err != nil {
		return Uploaded{}, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return Uploaded{}, fmt.Errorf("%q is neither a file nor a directory: only these are copied", local)
	}
	name, directory := "", target
	if !info.IsDir() {
		name, directory = path.Base(target), path.Dir(target)
		there, err := c.StatFile(ctx, id, target)
		switch {
		case err == nil && there.Type == FileDirectory || err != nil && errors.Is(err, ErrFileNotFound) && strings.HasSuffix(target, "/"):
			name, directory = filepath.Base(local), target
		case err != nil && !errors.Is(err, ErrFileNotFound):
			return Uploaded{}, err
		}
	}
	var uploaded Uploaded
	err = pack.Tar(local, name, func(stream io.Reader) error {
		uploaded, err = c.UploadTar(ctx, id, directory, stream, opts...)
		return err
	})
	return uploaded, err
}

// DownloadTar returns a file or directory of the sandbox as a tar stream, whose names begin with the path's last part. What
// the daemon refuses, the first Read tells. Close must follow.
func (c *Client) DownloadTar(ctx context.Context, id, path string, opts ...TransferOption) (io.ReadCloser, error) {
	stream, err := c.raw.DownloadFiles(ctx, &agboxv1.DownloadFilesRequest{SandboxId: id, Path: path})
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{transferred(stream, opts), stream}, nil
}

// Download copies a file of the sandbox to a local path, or into it where that is a directory; of a directory, the content
// into a local directory, which is made when it is missing. Permissions and times are kept, owners are not. Nothing is
// written elsewhere, whatever names and links the sandbox has; where its links lead is not looked at. Files that are
// neither of these make it fail, when all others are copied.
func (c *Client) Download(ctx context.Context, id, path, local string, opts ...TransferOption) error {
	stream, err := c.DownloadTar(ctx, id, path, opts...)
	if err != nil {
		return err
	}
	defer stream.Close()
	return pack.Unpack(stream, local)
}
