// Package pack turns local files into tar streams, and such streams into local files.
package pack

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Tar has send read a tar stream of a local file under the name, or of a directory with all that is in it where name is "". When all
// was sent, it names what was left out, being neither file nor directory nor link.
func Tar(local, name string, send func(io.Reader) error) error {
	reader, writer := io.Pipe()
	packed := make(chan struct{})
	buffer := bufio.NewWriterSize(writer, 64<<10)
	p := &packing{out: tar.NewWriter(buffer)}
	go func() {
		defer close(packed)
		var err error
		if name == "" {
			err = p.tree(local)
		} else {
			err = p.file(local, name)
		}
		if err == nil {
			err = errors.Join(p.out.Close(), buffer.Flush())
		}
		writer.CloseWithError(err)
	}()
	err := send(reader)
	reader.CloseWithError(context.Canceled)
	<-packed
	if err == nil {
		err = notCopied(p.others)
	}
	return err
}

// packing writes local files into a tar stream, by names of any bytes.
type packing struct {
	out *tar.Writer
	// others are what no sandbox takes: sockets, pipes, devices.
	others []string
}

// tree packs a directory, itself included, and what is below it; links stay links.
func (p *packing) tree(root string) error {
	return filepath.WalkDir(root, func(local string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, local)
		if err != nil {
			return err
		}
		switch name = filepath.ToSlash(name); {
		case info.Mode().IsRegular():
			return p.file(local, name)
		case info.IsDir():
			return p.header(info, name+"/", "")
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(local)
			if err != nil {
				return err
			}
			return p.header(info, name, target)
		}
		p.others = append(p.others, local)
		return nil
	})
}

func (p *packing) header(info fs.FileInfo, name, link string) error {
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX
	return p.out.WriteHeader(header)
}

// file packs a regular file with the size that it has when it is opened. One that was replaced since by a pipe is not waited
// for.
func (p *packing) file(local, name string) error {
	file, err := os.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		p.others = append(p.others, local)
		return nil
	}
	if err := p.header(info, name, ""); err != nil {
		return err
	}
	if n, err := io.CopyN(p.out, file, info.Size()); err != nil {
		return fmt.Errorf("%s: %d of %d bytes were read: %w", local, n, info.Size(), err)
	}
	return nil
}

// notCopied is an error that names what is no file, directory or link, nil for nothing.
func notCopied(others []string) error {
	if len(others) == 0 {
		return nil
	}
	var names []string
	for _, other := range others {
		names = append(names, strconv.Quote(other))
	}
	return fmt.Errorf("not copied, as they are neither files nor directories nor links: %s", strings.Join(names, ", "))
}
