package build

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// copying is what a COPY step means: as a Dockerfile's, a file to a path or into a directory, of a directory what is in it.
type copying struct {
	src  []string // the pattern, a part for each folder
	dest string   // absolute
	into bool     // files keep their names
	mode int64    // of files; -1: as they are
}

func newCopying(src, dest, workdir, mode string) (copying, error) {
	c := copying{mode: -1, into: strings.HasSuffix(dest, "/") || dest == "." || strings.ContainsAny(src, "*?[")}
	if src = path.Clean(strings.TrimLeft(src, "/")); src != "." {
		c.src = strings.Split(src, "/")
	}
	if c.dest = dest; !path.IsAbs(dest) {
		c.dest = path.Join(workdir, dest)
	}
	c.dest = path.Clean(c.dest)
	if mode != "" {
		m, err := strconv.ParseInt(mode, 8, 32)
		if err != nil || m < 0 || m > 0o7777 {
			return c, fmt.Errorf("the mode is %q: give an octal number such as 755", mode)
		}
		c.mode = m
	}
	if _, err := path.Match(src, ""); err != nil {
		return c, fmt.Errorf("the source %q is no pattern: %w", src, err)
	}
	return c, nil
}

// target is where an entry of the context goes; false: it is not copied.
func (c copying) target(name string, directory bool) (string, bool) {
	name = path.Clean(strings.TrimLeft(name, "/"))
	if name == ".." || strings.HasPrefix(name, "../") {
		return "", false
	}
	parts := strings.Split(name, "/")
	if name == "." {
		parts = nil
	}
	if len(parts) < len(c.src) {
		return "", false
	}
	for i, pattern := range c.src {
		if fits, _ := path.Match(pattern, parts[i]); !fits { // it was checked
			return "", false
		}
	}
	rest := parts[len(c.src):]
	if len(rest) == 0 && !directory && c.into {
		rest = parts[len(parts)-1:]
	}
	return path.Join(append([]string{c.dest}, rest...)...), true
}

// rewrite writes the context's entries that are copied as a tar stream with names from the root, and returns how many.
func (c copying) rewrite(from io.Reader, to io.Writer) (entries int, err error) {
	buffered := bufio.NewReader(from)
	from = buffered
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return 0, fmt.Errorf("the files that were uploaded are no gzip: %w", err)
		}
		defer unzipped.Close()
		from = unzipped
	}
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries, out.Close()
		}
		if err != nil {
			return entries, fmt.Errorf("the files that were uploaded are no tar stream: %w", err)
		}
		target, copied := c.target(header.Name, header.Typeflag == tar.TypeDir)
		if !copied || target == "/" {
			continue
		}
		kept := &tar.Header{Typeflag: header.Typeflag, Name: strings.TrimPrefix(target, "/"), Linkname: header.Linkname,
			Size: header.Size, Mode: header.Mode & 0o7777, ModTime: header.ModTime}
		switch header.Typeflag {
		case tar.TypeReg:
			if c.mode >= 0 {
				kept.Mode = c.mode
			}
		case tar.TypeLink:
			if kept.Linkname, copied = c.target(header.Linkname, false); !copied {
				continue
			}
			kept.Linkname = strings.TrimPrefix(kept.Linkname, "/")
		}
		if err := out.WriteHeader(kept); err != nil {
			return entries, err
		}
		if _, err := io.Copy(out, in); err != nil {
			return entries, err
		}
		entries++
	}
}
