package envd

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// file is one in the sandbox as http.ServeContent reads it: what was sought is opened when it is read.
type file struct {
	ctx    context.Context
	b      *box
	user   string
	path   string
	size   int64
	at     int64
	stream agboxv1.SandboxService_ReadFileClient
	stop   context.CancelFunc
	rest   []byte
	opened int64 // where the stream began, plus what was read of it
}

func (f *file) open(offset int64) (*agboxv1.FileInfo, error) {
	f.close()
	ctx, stop := context.WithCancel(f.ctx)
	stream, err := f.b.client.ReadFile(ctx, &agboxv1.ReadFileRequest{SandboxId: f.b.id, User: f.user, Path: f.path, FromHome: true, Offset: uint64(offset)})
	if err != nil {
		stop()
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		stop()
		return nil, err
	}
	f.stream, f.stop, f.rest, f.opened = stream, stop, first.GetData(), offset
	return first.GetFile(), nil
}

func (f *file) close() {
	if f.stop != nil {
		f.stop()
		f.stream, f.stop = nil, nil
	}
}

func (f *file) Read(p []byte) (int, error) {
	if f.stream == nil || f.opened != f.at {
		if _, err := f.open(f.at); err != nil {
			return 0, err
		}
	}
	for len(f.rest) == 0 {
		chunk, err := f.stream.Recv()
		if err != nil {
			return 0, err
		}
		f.rest = chunk.GetData()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	f.at += int64(n)
	f.opened = f.at
	return n, nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, errors.New("envd: a place before the file's beginning")
	}
	f.at = offset
	return offset, nil
}

// download answers with one file.
func (h *Handler) download(w http.ResponseWriter, r *http.Request) {
	b, query := boxOf(r.Context()), r.URL.Query()
	gzipped, acceptable := encoding(r.Header.Get("Accept-Encoding"))
	if !acceptable {
		refuse(http.StatusNotAcceptable, "files are sent as they are, or as gzip: accept one of these").write(w)
		return
	}
	user, err := h.user(r.Context(), b, query.Get("username"))
	if err != nil {
		userProblem(b, query.Get("username"), err).write(w)
		return
	}
	f := &file{ctx: r.Context(), b: b, user: user, path: query.Get("path")}
	defer f.close()
	info, err := f.open(0)
	if err != nil {
		userProblem(b, query.Get("username"), err).write(w)
		return
	}
	f.size = int64(info.GetSize())
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	if kind := mime.TypeByExtension(path.Ext(info.GetPath())); kind != "" {
		header.Set("Content-Type", kind)
	}
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox") // what a sandbox wrote is nobody's page
	header.Set("Content-Disposition", disposition(path.Base(info.GetPath())))
	header.Set("Vary", "Accept-Encoding")
	switch {
	case gzipped:
		header.Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, err := io.Copy(packed, f)
		carried(errors.Join(err, packed.Close()))
	case f.size == 0: // the kernel's files say so, too
		if r.Method == http.MethodGet {
			_, err := io.Copy(w, f)
			carried(err)
		}
	default:
		http.ServeContent(w, r, "", info.GetModifiedAt().AsTime(), f)
		if f.at < f.size && r.Method == http.MethodGet && r.Header.Get("Range") == "" && r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Modified-Since") == "" {
			panic(http.ErrAbortHandler) // it became shorter, or the sandbox stopped
		}
	}
}

// carried breaks the connection where a part of the file is on its way already and the rest will not come.
func carried(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// userProblem is problemOf for what a user was named for.
func userProblem(b *box, name string, err error) *problem {
	if refusalOf(err).reason == "OWNER_UNKNOWN" {
		return refuse(http.StatusUnauthorized, "invalid username: '%.100s'", name)
	}
	return problemOf(b, err)
}

func disposition(name string) string {
	if text := mime.FormatMediaType("inline", map[string]string{"filename": name}); text != "" {
		return text
	}
	return "inline"
}

// encoding reads what a client accepts: gzip where it wants nothing else.
func encoding(accepts string) (gzipped, acceptable bool) {
	identity, packed := true, false
	for part := range strings.SplitSeq(accepts, ",") {
		name, parameters, _ := strings.Cut(strings.ToLower(strings.TrimSpace(part)), ";")
		var quality float64 = 1
		if q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q="); found {
			if _, err := fmt.Sscanf(q, "%g", &quality); err != nil {
				quality = 1
			}
		}
		switch strings.TrimSpace(name) {
		case "identity", "*":
			identity = identity && quality > 0
		case "gzip":
			packed = quality > 0
		}
	}
	return !identity && packed, identity || packed
}
