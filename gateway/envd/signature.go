package envd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// signatureOf is what a file URL is signed with. expiration is as it stands in the URL, "" for none.
func signatureOf(path, operation, user, token, expiration string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// fits reports whether the request's signature was made with the token.
func fits(r *http.Request, token string) bool {
	query := r.URL.Query()
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	want := signatureOf(query.Get("path"), operation, query.Get("username"), token, query.Get("signature_expiration"))
	return subtle.ConstantTimeCompare([]byte(want), []byte(query.Get("signature"))) == 1
}

// checkSignature refuses a request that was not signed with the token, or whose time is over.
func checkSignature(r *http.Request, token string, now time.Time) *problem {
	if !fits(r, token) {
		return refuse(http.StatusUnauthorized, "invalid signature")
	}
	if given := r.URL.Query().Get("signature_expiration"); given != "" {
		expiration, err := strconv.ParseInt(given, 10, 64)
		if err != nil {
			return refuse(http.StatusUnauthorized, "invalid signature")
		}
		if expiration < now.Unix() {
			return refuse(http.StatusUnauthorized, "signature is already expired")
		}
	}
	return nil
}

// signers are the sandboxes that a signature may be of, as they were when the daemon was asked last. Anybody may ask, so that one request
// at a time does: turn has an entry while one looks.
type signers struct {
	turn  chan struct{}
	ids   []string
	asked time.Time
}

// signer returns the sandbox whose token a signature was made with. Who waited while others asked the daemon hears of what that said.
func (h *Handler) signer(r *http.Request) (string, *problem) {
	ctx, cancel := context.WithTimeout(r.Context(), calm)
	defer cancel()
	arrived, s := time.Now(), &h.signers
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", refuse(http.StatusServiceUnavailable, "too many ask for files at once: try again later")
	}
	made := func(id string) bool { return fits(r, h.config.Token(id)) }
	at := slices.IndexFunc(s.ids, made)
	if at < 0 && !s.asked.After(arrived) {
		asked := time.Now()
		ids, err := h.config.Sandboxes(ctx)
		if err != nil {
			return "", refuse(http.StatusInternalServerError, "the daemon does not answer: %s", refusalOf(err).message)
		}
		s.ids, s.asked = ids, asked
		at = slices.IndexFunc(ids, made)
	}
	if at < 0 {
		return "", refuse(http.StatusUnauthorized, "invalid signature")
	}
	return s.ids[at], nil
}
