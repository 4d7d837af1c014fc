package ports

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/gateway/route"
)

// Ways to show a token of a private port. A browser shows it once in the address, and has it in a cookie from then on, which is
// that host's alone: a port of that sandbox.
const (
	HeaderToken  = "E2b-Traffic-Access-Token"
	headerAccess = "X-Access-Token"
	queryToken   = "agbox-token"
	cookieName   = "agbox-port-token"
)

type outcome int

const (
	refused outcome = iota
	passed
	answered
)

// shown finds out whether the request may pass. One that shows its token in the address is answered with the address without it.
func (h *Handler) shown(w http.ResponseWriter, r *http.Request, target route.Target) outcome {
	id := target.Sandbox
	if token := r.URL.Query().Get(queryToken); token != "" && h.fits(id, token) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return passed
		}
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: h.config.Token(id), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Location", without(r))
		w.WriteHeader(http.StatusSeeOther)
		return answered
	}
	for _, cookie := range r.CookiesNamed(cookieName) { // a page of another sandbox may have set one, too
		if h.fits(id, cookie.Value) {
			return passed
		}
	}
	if h.fits(id, r.Header.Get(HeaderToken)) || h.fits(id, r.Header.Get(headerAccess)) || h.config.Holder(r, id) {
		return passed
	}
	return refused
}

func (h *Handler) fits(id, token string) bool {
	same := func(secret string) bool { return subtle.ConstantTimeCompare([]byte(secret), []byte(token)) == 1 }
	return token != "" && (same(h.config.Token(id)) || same(h.config.All(id)))
}

// without is the request's own address, on its host, without the token. It never begins with two slashes, which would name another
// host.
func without(r *http.Request) string {
	u := *r.URL
	query := u.Query()
	query.Del(queryToken)
	u.Scheme, u.Host, u.RawQuery = "", "", query.Encode()
	return "/" + strings.TrimLeft(u.String(), "/\\")
}

// strip takes out of a request what showed its sender to the gateway: nothing of that is for a sandbox.
func (h *Handler) strip(r *http.Request, id string) {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		for _, value := range r.Header.Values(name) {
			if h.config.Known(&http.Request{Header: http.Header{name: {value}}}) {
				r.Header.Del(name)
				break
			}
		}
	}
	for _, name := range []string{HeaderToken, headerAccess} {
		if slices.ContainsFunc(r.Header.Values(name), func(value string) bool { return h.fits(id, value) }) {
			r.Header.Del(name)
		}
	}
	r.Header.Del(route.HeaderSandbox)
	r.Header.Del(route.HeaderPort)
	if query := r.URL.Query(); h.fits(id, query.Get(queryToken)) {
		query.Del(queryToken)
		r.URL.RawQuery = query.Encode()
	}
	stripCookie(r.Header)
}

// stripCookie takes the gateway's cookie out, and leaves the others as they came.
func stripCookie(header http.Header) {
	var lines []string
	for _, line := range header.Values("Cookie") {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			if name, _, _ := strings.Cut(strings.TrimSpace(pair), "="); name != cookieName {
				kept = append(kept, strings.TrimSpace(pair))
			}
		}
		if len(kept) > 0 {
			lines = append(lines, strings.Join(kept, "; "))
		}
	}
	header.Del("Cookie")
	if len(lines) > 0 {
		header["Cookie"] = lines
	}
}
