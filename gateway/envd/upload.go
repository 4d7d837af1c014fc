package envd

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// maxParts is how many files one upload has at most.
	maxParts = 10_000
	// uploadPart is how many bytes of a file one message has.
	uploadPart = 64 << 10
	// Of metadata: how long a key may be, and all of it, each key with the prefix that it has as an attribute.
	maxKey         = 246
	maxMetadata    = 4096
	metadataHeader = "X-Metadata-"
)

// written is one file as an upload's answer tells of it.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// uploading is one request that writes files.
type uploading struct {
	*Handler
	b          *box
	user       string
	attributes map[string]string
	seen       func(context.Context, string)
}

// upload writes one file, or those of a form.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request) {
	b, query := boxOf(r.Context()), r.URL.Query()
	attributes, refused := metadataIn(r.Header)
	if refused != nil {
		refused.write(w)
		return
	}
	user, err := h.user(r.Context(), b, query.Get("username"))
	if err != nil {
		userProblem(b, query.Get("username"), err).write(w)
		return
	}
	body := io.Reader(r.Body)
	switch coding := strings.ToLower(r.Header.Get("Content-Encoding")); coding {
	case "", "identity":
	case "gzip":
		if body, err = gzip.NewReader(r.Body); err != nil {
			refuse(http.StatusBadRequest, "the body is not gzip: %s", err).write(w)
			return
		}
	default:
		refuse(http.StatusBadRequest, "Content-Encoding is %.50q: send gzip, or the file as it is", coding).write(w)
		return
	}
	u := &uploading{h, b, user, attributes, h.watchers.expect(b.id)}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var files []written
	switch {
	case err == nil && kind == "application/octet-stream":
		if query.Get("path") == "" {
			refuse(http.StatusBadRequest, "the query has no path: name the file").write(w)
			return
		}
		var one written
		if one, err = u.write(r.Context(), query.Get("path"), body); err == nil {
			files = []written{one}
		}
	case err == nil && kind == "multipart/form-data" && parameters["boundary"] != "":
		files, err = u.form(r.Context(), multipart.NewReader(body, parameters["boundary"]), query.Get("path"))
	default:
		refuse(http.StatusBadRequest, "Content-Type is %.100q: send multipart/form-data or application/octet-stream", r.Header.Get("Content-Type")).write(w)
		return
	}
	if err != nil {
		userProblem(b, query.Get("username"), err).write(w)
		return
	}
	answer(w, http.StatusOK, files)
}

// form writes the files of a form in their order: named is the path of the only one, else each has its own.
func (u *uploading) form(ctx context.Context, parts *multipart.Reader, named string) ([]written, error) {
	files, taken := []written{}, map[string]bool{}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF && len(files) == 0 {
			return nil, refuse(http.StatusBadRequest, "the form has no part named file: it cannot be read")
		} else if err == io.EOF {
			return files, nil
		} else if err != nil {
			return nil, refuse(http.StatusBadRequest, "the form cannot be read: %s", err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := named
		if to == "" {
			_, parameters, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if to = parameters["filename"]; to == "" { // FileName would cut the directories off
				return nil, refuse(http.StatusBadRequest, "a file has neither a filename nor a path in the query: name it")
			}
		}
		clean := path.Clean(to)
		if taken[clean] {
			return nil, refuse(http.StatusBadRequest, "two files are for %.200q: send one", to)
		}
		if taken[clean] = true; len(taken) > maxParts {
			return nil, refuse(http.StatusBadRequest, "the form has more than %d files: send the rest in another", maxParts)
		}
		one, err := u.write(ctx, to, part)
		if err != nil {
			return nil, err
		}
		files = append(files, one)
	}
}

// write makes one file, in the place of what is there.
func (u *uploading) write(ctx context.Context, to string, content io.Reader) (written, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.b.client.WriteFile(ctx)
	if err != nil {
		return written{}, err
	}
	err = stream.Send(&agboxv1.WriteFileRequest{Message: &agboxv1.WriteFileRequest_Start{Start: &agboxv1.WriteFileStart{
		SandboxId: u.b.id, Path: to, User: u.user, FromHome: true, InPlace: true, Parents: true, Attributes: u.attributes, RemoveAttributes: metadataPrefix}}})
	for buffer := make([]byte, uploadPart); err == nil; {
		n, failed := content.Read(buffer)
		if n > 0 {
			err = stream.Send(&agboxv1.WriteFileRequest{Message: &agboxv1.WriteFileRequest_Data{Data: buffer[:n]}})
		}
		if failed == io.EOF {
			break
		} else if failed != nil {
			if large := (*http.MaxBytesError)(nil); errors.As(failed, &large) {
				return written{}, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", large.Limit)
			}
			return written{}, refuse(http.StatusBadRequest, "the file cannot be read: %s", failed)
		}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return written{}, err
	}
	file := response.GetFile()
	u.seen(ctx, file.GetPath())
	return written{Name: path.Base(file.GetPath()), Path: file.GetPath(), Type: "file", Metadata: metadataOf(file)}, nil
}

// metadataIn are the attributes that a request's headers give to what it writes.
func metadataIn(header http.Header) (map[string]string, *problem) {
	attributes, size := map[string]string{}, 0
	for name, values := range header {
		key, is := strings.CutPrefix(http.CanonicalHeaderKey(name), metadataHeader)
		if !is {
			continue
		}
		key = strings.ToLower(key)
		value := strings.Join(values, ", ")
		size += len("user."+metadataPrefix) + len(key) + len(value)
		switch {
		case key == "" || len(key) > maxKey:
			return nil, refuse(http.StatusBadRequest, "a metadata key has %d bytes: give it 1 to %d", len(key), maxKey)
		case !printable(key) || !printable(value):
			return nil, refuse(http.StatusBadRequest, "the metadata %.100q is not printable ASCII", key)
		case size > maxMetadata:
			return nil, refuse(http.StatusBadRequest, "the metadata has more than %d bytes", maxMetadata)
		}
		attributes[metadataPrefix+key] = value
	}
	return attributes, nil
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
