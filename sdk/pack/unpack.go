package pack

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Unpack writes what is in a tar stream to local; see sdk.Client.Download.
func Unpack(stream io.Reader, local string) error {
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
