package archive

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// What a user of a sandbox does to one file, agbox-init does as that user: what the user may not, it cannot.

// ReadFile reads a regular file of a primary that runs: take gets what it is, and then its bytes, which are take's until it returns.
func (fs *Files) ReadFile(ctx context.Context, sandboxID string, get files.Get, take func(*agboxv1.FileInfo, []byte) error) error {
	told := false
	_, err := fs.insideAs(ctx, sandboxID, get.User, nil, func(fields []string) error {
		if told && len(fields) == 2 && fields[0] == protocol.FileData {
			return take(nil, []byte(fields[1]))
		}
		info, err := files.ParseEntry(fields)
		if err == nil && told {
			err = protocol.ErrMalformed
		}
		if told = true; err != nil {
			return err
		}
		return take(info, nil)
	}, "get", get.Path, strconv.FormatUint(get.Offset, 10), strconv.FormatUint(get.Length, 10))
	return err
}

// filePart is how many bytes of a file go into one record.
const filePart = 32 << 10

// WriteFile writes a file of a primary that runs, to the end of content.
func (fs *Files) WriteFile(ctx context.Context, sandboxID string, put files.Put, content io.Reader) (*agboxv1.FileInfo, error) {
	mode := int64(-1)
	if put.Mode != nil {
		mode = int64(*put.Mode)
	}
	args := []string{"put", put.Path, strconv.FormatInt(mode, 10), put.RemoveAttributes}
	if put.InPlace {
		args = append(args, "-in-place")
	}
	if put.Parents {
		args = append(args, "-parents")
	}
	return fs.entry(ctx, sandboxID, put.User, func(to io.Writer) error {
		var records []byte
		for _, name := range slices.Sorted(maps.Keys(put.Attributes)) {
			records = protocol.AppendFile(records, protocol.FileAttribute, name, put.Attributes[name])
		}
		part := make([]byte, filePart)
		for {
			n, err := content.Read(part)
			if n > 0 {
				records = protocol.AppendFileData(records, part[:n])
			}
			if err == io.EOF {
				records = protocol.AppendFile(records, protocol.FileEnd)
			} else if err != nil {
				return err
			}
			if _, failed := to.Write(records); failed != nil || err == io.EOF {
				return failed
			}
			records = records[:0]
		}
	}, args...)
}

// MakeDirectory makes a directory in a primary that runs.
func (fs *Files) MakeDirectory(ctx context.Context, sandboxID, user, path string, mode uint32, parents bool) (*agboxv1.FileInfo, error) {
	ctx, cancel := fs.engine.Read(ctx)
	defer cancel()
	args := []string{"mkdir", path, strconv.FormatUint(uint64(mode), 10)}
	if parents {
		args = append(args, "-parents")
	}
	return fs.entry(ctx, sandboxID, user, nil, args...)
}

// MoveFile renames in a primary that runs.
func (fs *Files) MoveFile(ctx context.Context, sandboxID string, move files.Move) (*agboxv1.FileInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.WriteTimeout)
	defer cancel()
	args := []string{"move", move.Source, move.Destination}
	if move.Parents {
		args = append(args, "-parents")
	}
	if move.KeepExisting {
		args = append(args, "-keep")
	}
	return fs.entry(ctx, sandboxID, move.User, nil, args...)
}

// entry is insideAs for what tells of one file.
func (fs *Files) entry(ctx context.Context, sandboxID, user string, feed func(io.Writer) error, args ...string) (info *agboxv1.FileInfo, err error) {
	_, err = fs.insideAs(ctx, sandboxID, user, feed, func(fields []string) (err error) {
		info, err = files.ParseEntry(fields)
		return err
	}, args...)
	if err == nil && info == nil {
		err = protocol.ErrMalformed
	}
	return info, err
}
