package relay

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Gather adds to the files of this host what the archive, of the forwarder's directories, has more. It makes none: names from a sandbox
// choose nothing that is not there for it already. File tells which one is for the kind of an exec, "" for none; room is as in Sandbox.
func Gather(archive *tar.Reader, file func(execID, kind string) string, room func(*os.File) uint64) error {
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		id, what, _ := strings.Cut(path.Base(header.Name), ".")
		if header.Typeflag != tar.TypeReg || id == "" {
			continue
		}
		what = strings.TrimSuffix(what, ".log")
		name := file(id, what)
		switch {
		case name == "":
		case what == protocol.KindRecord:
			err = addRecord(name, id, archive)
		default:
			err = appendRest(name, archive, room)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// appendRest makes a file as long as the other one is, as far as there is room: the other one may be a hole.
func appendRest(name string, from io.Reader, room func(*os.File) uint64) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, from, info.Size())
	}
	if err == io.EOF {
		return nil
	}
	if err == nil {
		_, err = io.Copy(file, io.LimitReader(from, int64(min(room(file), math.MaxInt64))))
	}
	return err
}

// maxRecord is more bytes than any result takes.
const maxRecord = 8 << 10

// addRecord keeps a result of which this host has none.
func addRecord(name, execID string, from io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(from, maxRecord))
	if err != nil {
		return err
	}
	if result, valid := protocol.ParseRecord(data); !valid || result.ID != execID {
		return nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	held, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if _, valid := protocol.ParseRecord(held); err == nil && !valid {
		_, err = file.WriteAt(data, 0)
	}
	return err
}
