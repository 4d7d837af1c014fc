package sdk

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
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
	pack, directory := func(p *packing) error { return p.tree(local) }, target
	if !info.IsDir() {
		name := path.Base(target)
		directory = path.Dir(target)
		there, err := c.StatFile(ctx, id, target)
		switch {
		case err == nil && there.Type == FileDirectory || err != nil && errors.Is(err, ErrFileNotFound) && strings.HasSuffix(target, "/"):
			name, directory = filepath.Base(local), target
		case err != nil && !errors.Is(err, ErrFileNotFound):
			return Uploaded{}, err
		}
		pack = func(p *packing) error { return p.file(local, name) }
	}
	reader, writer := io.Pipe()
	packed := make(chan struct{})
	buffer := bufio.NewWriterSize(writer, 64<<10)
	p := &packing{out: tar.NewWriter(buffer)}
	go func() {
		defer close(packed)
		err := pack(p)
		if err == nil {
			err = errors.Join(p.out.Close(), buffer.Flush())
		}
		writer.CloseWithError(err)
	}()
	uploaded, err := c.UploadTar(ctx, id, directory, reader, opts...)
	reader.CloseWithError(context.Canceled)
	<-packed
	if err == nil {
		err = notCopied(p.others)
	}
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
	in := tar.NewReader(stream)
	first, err := in.Next()
	if err != nil {
		return err
	}
	if first.Typeflag != tar.TypeDir {
		return downloadFile(in, first, local)
	}
	_, missing := os.Lstat(local)
	if err := os.MkdirAll(local, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacking{root: root, top: strings.Trim(first.Name, "/") + "/"}
	if missing != nil {
		u.directories = append(u.directories, &tar.Header{Name: ".", Mode: first.Mode, ModTime: first.ModTime})
	}
	for {
		header, err := in.Next()
		if err == io.EOF {
			return u.finish()
		} else if err != nil {
			return err
		}
		if err := u.entry(header, in); err != nil {
			return err
		}
	}
}

// downloadFile writes the one entry of a stream.
func downloadFile(in *tar.Reader, header *tar.Header, local string) error {
	directory, name := filepath.Split(local)
	if info, err := os.Stat(local); err == nil && info.IsDir() || name == "" {
		directory, name = local, path.Base(header.Name)
	}
	root, err := os.OpenRoot(cmp.Or(directory, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacking{root: root}
	header.Name = name
	return errors.Join(u.entry(header, in), u.finish())
}

// unpacking writes below a local directory, and cannot write elsewhere.
type unpacking struct {
	root        *os.Root
	top         string        // what every name begins with
	directories []*tar.Header // whose permissions and times come last; names are local
	others      []string
}

func (u *unpacking) entry(header *tar.Header, content io.Reader) error {
	name := filepath.FromSlash(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(header.Name, "/"), u.top), "/"))
	if name == "" || name == "." {
		return nil
	}
	if header.Typeflag == tar.TypeDir {
		u.directories = append(u.directories, &tar.Header{Name: name, Mode: header.Mode, ModTime: header.ModTime})
		if info, err := u.root.Lstat(name); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory here, and is one in the sandbox: remove it first", filepath.Join(u.root.Name(), name))
		}
		return u.root.MkdirAll(name, 0o700)
	}
	if info, err := u.root.Lstat(name); err == nil && !info.IsDir() { // nothing is written through a link that is there
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return u.file(name, header, content)
	case tar.TypeSymlink:
		return u.root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return u.root.Link(filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(header.Linkname, "/"), u.top)), name)
	}
	u.others = append(u.others, header.Name)
	return nil
}

func (u *unpacking) file(name string, header *tar.Header, content io.Reader) error {
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err == nil {
		err = file.Chmod(os.FileMode(header.Mode & 0o777))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, time.Time{}, header.ModTime)
}

func (u *unpacking) finish() error {
	for _, header := range slices.Backward(u.directories) {
		if err := u.root.Chmod(header.Name, os.FileMode(header.Mode&0o777)); err != nil {
			return err
		}
		if err := u.root.Chtimes(header.Name, time.Time{}, header.ModTime); err != nil {
			return err
		}
	}
	return notCopied(u.others)
}
