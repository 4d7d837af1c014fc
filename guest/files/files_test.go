package files_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func TestClean(t *testing.T) {
	for p, want := range map[string]string{
		"a": "/work/a", ".": "/work", "../../../x": "/x", "/a/../../b/": "/b", "/": "/", "a//b": "/work/a/b",
	} {
		if got, err := files.Clean("/work", p); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", p, got, err, want)
		}
	}
	for _, p := range []string{"", "a\x00", strings.Repeat("x", 4096)} {
		if _, err := files.Clean("/work", p); !errors.Is(err, files.ErrPath) {
			t.Errorf("%.10q: %v", p, err)
		}
	}
}

func TestAccounts(t *testing.T) {
	accounts := files.Accounts{Passwd: "root:x:0:0::/root:\nbad line\nagbox:x:1000:1001::/:\nfive:x:5:6", Group: "wheel:x:10:agbox\n"}
	for spec, want := range map[string]files.Account{
		"root": {}, "agbox": {1000, 1001}, "5": {5, 6}, "5:0": {5, 0}, "77": {77, 0}, "agbox:wheel": {1000, 10}, "77:88": {77, 88}, "agbox:": {1000, 1001},
	} {
		if got, err := accounts.Lookup(spec); got != want || err != nil {
			t.Errorf("%q is %v, %v; want %v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"nobody", "5:nobody", "-1", "4294967296"} {
		if got, err := accounts.Lookup(spec); !errors.Is(err, files.ErrOwner) {
			t.Errorf("%q is %v, %v", spec, got, err)
		}
	}
	empty := files.Accounts{}
	for _, c := range []struct {
		accounts    files.Accounts
		spec, image string
		want        files.Account
	}{
		{accounts, "", "5", files.Account{UID: 1000, GID: 1001}}, {accounts, "five", "", files.Account{UID: 5, GID: 6}},
		{empty, "", "", files.Account{}}, {empty, "", "1234", files.Account{UID: 1234}}, {empty, "root", "9", files.Account{}},
	} {
		if got, err := c.accounts.Rule(c.spec, c.image); got != c.want || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
}

// sink remembers what it is given.
type sink struct {
	got  []tar.Header
	ends int
}

func (s *sink) Add(header *tar.Header, content io.Reader) error {
	s.got = append(s.got, *header)
	if content == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, content)
	return err
}

func (s *sink) End() error { s.ends++; return nil }

// archive makes a tar stream of headers; files get the content "x" as often as their size says.
func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, header := range headers {
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", int(header.Size))), header.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestUnpackSetsTimesOfDirectories at the end, when nothing comes into them any more.
func TestUnpackSetsTimesOfDirectories(t *testing.T) {
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	s := &sink{}
	written, err := files.Unpack(archive(t, tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o750, ModTime: at}, tar.Header{Name: "a/large", Size: 5 << 20}), s)
	if err != nil || written != (files.Written{Files: 1, Bytes: 5 << 20}) || len(s.got) != 3 || s.ends != 1 {
		t.Fatalf("%+v of %+v, %v", written, s, err)
	}
	if last := s.got[2]; last.Name != "a" || !last.ModTime.Equal(at) || last.Mode != 0o750 {
		t.Errorf("the last entry is %+v", last)
	}
}

// TestUnpackHoldsLittle: many long names cost no memory beyond a bound.
func TestUnpackHoldsLittle(t *testing.T) {
	from, to := io.Pipe()
	defer from.Close()
	go func() {
		w := tar.NewWriter(to)
		long := strings.Repeat(strings.Repeat("n", 200)+"/", 17)
		for i := range 20_000 {
			if w.WriteHeader(&tar.Header{Name: long + strconv.Itoa(i) + "/", Typeflag: tar.TypeDir, Format: tar.FormatPAX}) != nil {
				return
			}
		}
		to.CloseWithError(w.Close())
	}()
	var most runtime.MemStats
	s := &counting{each: 5000, look: func() { runtime.GC(); runtime.ReadMemStats(&most) }}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := files.Unpack(from, s); err != nil {
		t.Fatal(err)
	}
	if grown := int64(most.HeapAlloc) - int64(before.HeapAlloc); grown > 12<<20 {
		t.Errorf("68 MB of names hold %d bytes", grown)
	}
	if s.n < 20_000+1000 || s.n > 20_000+2000 {
		t.Errorf("%d entries, those that are repeated included", s.n)
	}
}

type counting struct {
	n, each int
	look    func()
}

func (c *counting) Add(*tar.Header, io.Reader) error {
	if c.n++; c.n%c.each == 0 {
		c.look()
	}
	return nil
}

func (*counting) End() error { return nil }

// TestUnpackRefuses what leads out of the directory, and what would keep a processor busy.
func TestUnpackRefuses(t *testing.T) {
	link := tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}
	for name, test := range map[string]struct {
		kind    error
		headers []tar.Header
	}{
		"through its own link":   {files.ErrEscapes, []tar.Header{link, {Name: "a/l/passwd"}}},
		"deep through its link":  {files.ErrEscapes, []tar.Header{link, {Name: "./a//l/x/y/z"}}},
		"directory behind links": {files.ErrEscapes, []tar.Header{link, {Name: "a/l/x/", Typeflag: tar.TypeDir}}},
		"hard link through it":   {files.ErrEscapes, []tar.Header{{Name: "d/shadow"}, {Name: "d", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "x", Typeflag: tar.TypeLink, Linkname: "d/shadow"}}},
		"hard link to its link":  {files.ErrEntry, []tar.Header{{Name: "x/a"}, {Name: "f"}, {Name: "f", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "x", Typeflag: tar.TypeLink, Linkname: "f"}, {Name: "x/passwd"}}},
		"endless link":           {files.ErrEntry, []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("a", 4096)}}},
		"many components":        {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a/", 50_000) + "x"}}},
		"deep":                   {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a/", 600) + "x"}}},
		"long":                   {files.ErrEntry, []tar.Header{{Name: strings.Repeat(strings.Repeat("a", 200)+"/", 18) + "x"}}},
		"long name":              {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a", 256)}}},
	} {
		for i := range test.headers {
			test.headers[i].Format = tar.FormatPAX
		}
		if _, err := files.Unpack(archive(t, test.headers...), &sink{}); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	replaced := []tar.Header{link, {Name: "a/l/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "a/l/x"}}
	if _, err := files.Unpack(archive(t, replaced...), &sink{}); err != nil {
		t.Errorf("a link that a directory has replaced: %v", err)
	}
}

// FuzzUnpack: whatever comes in, what goes out stays below the directory.
func FuzzUnpack(f *testing.F) {
	for _, header := range []tar.Header{
		{Name: "a/b", Size: 1, Mode: 0o6755}, {Name: "../x"}, {Name: "/x"}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/x"},
		{Name: "h", Typeflag: tar.TypeLink, Linkname: "../x"}, {Name: "p", Typeflag: tar.TypeFifo}, {Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: strings.Repeat("x", 300), PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&header); err != nil {
			f.Fatal(err)
		}
		io.CopyN(w, strings.NewReader("x"), header.Size)
		w.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		s := &sink{}
		_, err := files.Unpack(bytes.NewReader(stream), s)
		if err == nil && s.ends != 1 {
			t.Error("it was not ended")
		}
		for _, header := range s.got {
			below := func(name string) bool { return name == path.Clean(name) && path.Join("/to", name) == "/to/"+name }
			if header.Name != "." && !below(header.Name) || header.Typeflag == tar.TypeLink && !below(header.Linkname) || header.Uname != "" || len(header.PAXRecords) > 0 {
				t.Errorf("%+v", header)
			}
			if mode := (files.Account{UID: 5}).Plain(header.Mode); mode&^0o1777 != 0 {
				t.Errorf("the mode of %+v is %o", header, mode)
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		for r := bufio.NewReader(bytes.NewReader(stream)); ; {
			fields, err := protocol.ReadFile(r)
			if err != nil {
				return
			}
			_, entryErr := files.ParseEntry(fields)
			_, eventErr := files.ParseEvent(fields)
			if entryErr == nil && eventErr == nil || files.ParseFailure(fields) == nil {
				t.Errorf("%q", fields)
			}
			again, err := protocol.ReadFile(bufio.NewReader(bytes.NewReader(protocol.AppendFile(nil, fields...))))
			if err != nil || !slices.Equal(again, fields) {
				t.Errorf("%q became %q, %v", fields, again, err)
			}
		}
	})
}
