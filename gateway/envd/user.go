package envd

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"

	"connectrpc.com/connect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// DefaultUser is whom E2B's images have for who names none. Where an image has no such user it is as whom agbox runs commands.
const DefaultUser = "user"

// maxUsers bounds of how many sandboxes the default user is remembered.
const maxUsers = 4096

// users are the default users of sandboxes as they were found out.
type users struct {
	mu    sync.Mutex
	known map[string]string
}

func (u *users) get(id string) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	user, found := u.known[id]
	return user, found
}

func (u *users) put(id, user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) >= maxUsers || u.known == nil {
		u.known = map[string]string{} // it is found out again
	}
	u.known[id] = user
}

// named is the user of an RPC, "" for none.
func named(header http.Header) (string, error) {
	given := header.Get("Authorization")
	if given == "" {
		return "", nil
	}
	scheme, value, _ := strings.Cut(given, " ")
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	name, _, found := strings.Cut(string(decoded), ":")
	if !strings.EqualFold(scheme, "Basic") || err != nil || !found || strings.ContainsAny(name, "\x00\n") {
		return "", connect.NewError(connect.CodeUnauthenticated, errAuthorization)
	}
	return name, nil
}

// user is whom a request is for.
func (h *Handler) user(ctx context.Context, b *box, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	if user, known := h.users.get(b.id); known {
		return user, nil
	}
	user := DefaultUser
	_, err := b.client.StatFile(ctx, &agboxv1.StatFileRequest{SandboxId: b.id, User: &user, Path: "/"})
	if err != nil && refusalOf(err).reason == "OWNER_UNKNOWN" {
		user, err = "", nil
	}
	if err != nil {
		return "", err
	}
	h.users.put(b.id, user)
	return user, nil
}

// rpcUser is user for an RPC.
func (h *Handler) rpcUser(ctx context.Context, header http.Header) (b *box, user string, err error) {
	b = boxOf(ctx)
	name, err := named(header)
	if err == nil {
		user, err = h.user(ctx, b, name)
	}
	return b, user, rpcError(err)
}
