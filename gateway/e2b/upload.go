package e2b

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/gateway/build"
)

// UploadPath is where the files of builds are sent, by who shows the signature that they were given, and no key.
const UploadPath = "/e2b/uploads/"

// uploadTime is how long a signature holds.
const uploadTime = time.Hour

// files tells where to send the files of a step, unless they are there.
func (b builds) files(c *call) (int, any, error) {
	owner, hash := b.config.Owner(c.Request), c.PathValue("hash")
	if b.config.Builds.Has(owner, hash) {
		return http.StatusCreated, map[string]any{"present": true}, nil
	}
	scheme := "http"
	if c.TLS != nil || strings.EqualFold(c.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	path := base64.RawURLEncoding.EncodeToString([]byte(owner)) + "/" + base64.RawURLEncoding.EncodeToString([]byte(hash))
	until := strconv.FormatInt(time.Now().Add(uploadTime).Unix(), 10)
	to := url.URL{Scheme: scheme, Host: c.Host, Path: UploadPath + path,
		RawQuery: url.Values{"until": {until}, "signature": {b.signature(path, until)}}.Encode()}
	return http.StatusCreated, map[string]any{"present": false, "url": to.String()}, nil
}

// signature is nothing that could be a sandbox's token: no sandbox has such an id.
func (h *Handler) signature(path, until string) string {
	return h.config.Token("upload " + path + " until " + until)
}

// upload keeps the files of a step.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, UploadPath)
	until, err := strconv.ParseInt(r.URL.Query().Get("until"), 10, 64)
	signed := subtle.ConstantTimeCompare([]byte(h.signature(path, r.URL.Query().Get("until"))), []byte(r.URL.Query().Get("signature"))) == 1
	owner, hash, _ := strings.Cut(path, "/")
	name, ownerErr := base64.RawURLEncoding.DecodeString(owner)
	of, hashErr := base64.RawURLEncoding.DecodeString(hash)
	switch {
	case h.config.Builds == nil:
		refused(http.StatusNotImplemented, "this gateway builds no templates").write(w)
		return
	case r.Method != http.MethodPut:
		refused(http.StatusMethodNotAllowed, "files are sent by PUT").write(w)
		return
	case err != nil || ownerErr != nil || hashErr != nil || !signed:
		refused(http.StatusUnauthorized, "invalid signature").write(w)
		return
	case time.Now().Unix() > until:
		refused(http.StatusUnauthorized, "signature is already expired").write(w)
		return
	}
	err = h.config.Builds.Put(string(name), string(of), http.MaxBytesReader(w, r.Body, build.MaxUpload))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refused(http.StatusRequestEntityTooLarge, "the files of a step have more than %d bytes", large.Limit).write(w)
	case errors.Is(err, build.ErrFull):
		refused(http.StatusInsufficientStorage, "%s", err).write(w)
	case err != nil:
		h.config.Log.Warn("the files of a build were not kept", "error", err)
		refused(http.StatusInternalServerError, "the files were not kept: send them again").write(w)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
