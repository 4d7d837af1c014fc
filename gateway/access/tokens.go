package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Token is what is kept of a token: all but the token itself.
type Token struct {
	Name    string            `json:"name"`
	Hash    string            `json:"sha256"`
	Labels  map[string]string `json:"labels,omitempty"`
	Quota   Quota             `json:"quota,omitzero"`
	Rate    float64           `json:"rate,omitempty"`
	Grants  []Grant           `json:"grants,omitempty"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires,omitzero"`
}

func (t Token) identity() Identity {
	return Identity{Name: t.Name, Labels: maps.Clone(t.Labels), Quota: t.Quota, Rate: t.Rate, Grants: slices.Clone(t.Grants), Expires: t.Expires}
}

// What changes of the tokens are refused with.
var (
	ErrTokenName  = errors.New("access: no name for a token")
	ErrTokenTaken = errors.New("access: there is a token of that name")
	ErrNoSuch     = errors.New("access: there is no token of that name")
	ErrState      = errors.New("access: the gateway's state cannot be used")
)

// Tokens are those in a gateway's state directory. Any number of processes may have them open; a change counts at once in all.
type Tokens struct {
	dir    string
	loaded atomic.Pointer[tokenFile]
}

type tokenFile struct {
	stamp  stamp
	tokens []Token
}

// stamp is a file as it was when it was read.
type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
}

const (
	tokensName = "tokens.json"
	secretName = "secret"
	lockName   = "lock"
)

// OpenTokens makes the directory when it is missing, for its user alone, and refuses one that others can read.
func OpenTokens(dir string) (*Tokens, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w: %s can be used by others (mode %o): run chmod 700 %[2]s", ErrState, dir, info.Mode().Perm())
	}
	return &Tokens{dir: dir}, nil
}

// Dir is the gateway's state directory.
func (t *Tokens) Dir() string { return t.dir }

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// Add keeps a token and returns it: it is told this once and never again. Hash and Created are filled in.
func (t *Tokens) Add(token Token) (secret string, err error) {
	if !nameForm.MatchString(token.Name) {
		return "", fmt.Errorf("%w: %q: use up to 64 letters, digits, ., - and _", ErrTokenName, token.Name)
	}
	var random [20]byte
	rand.Read(random[:]) // never fails
	secret = "e2b_" + hex.EncodeToString(random[:])
	hash := sha256.Sum256([]byte(secret))
	token.Hash, token.Created = hex.EncodeToString(hash[:]), time.Now().UTC().Truncate(time.Second)
	return secret, t.change(func(tokens []Token) ([]Token, error) {
		if slices.ContainsFunc(tokens, func(other Token) bool { return other.Name == token.Name }) {
			return nil, fmt.Errorf("%w: %s: revoke it first, or choose another name", ErrTokenTaken, token.Name)
		}
		return append(tokens, token), nil
	})
}

// Revoke forgets a token, which no request is accepted with from then on.
func (t *Tokens) Revoke(name string) error {
	return t.change(func(tokens []Token) ([]Token, error) {
		kept := slices.DeleteFunc(slices.Clone(tokens), func(token Token) bool { return token.Name == name })
		if len(kept) == len(tokens) {
			return nil, fmt.Errorf("%w: %s: agbox gateway token list shows those there are", ErrNoSuch, name)
		}
		return kept, nil
	})
}

// List returns all tokens, those that have expired too, in the order in which they were made.
func (t *Tokens) List() ([]Token, error) {
	file, err := t.read()
	if err != nil {
		return nil, err
	}
	return slices.Clone(file.tokens), nil
}

// identify returns whose token it is. Each is compared, in a time that does not depend on how much is right.
func (t *Tokens) identify(secret string) (Identity, error) {
	file, err := t.read()
	if err != nil {
		return Identity{}, err
	}
	sum := sha256.Sum256([]byte(secret))
	hash, found := []byte(hex.EncodeToString(sum[:])), -1
	for i, token := range file.tokens {
		if subtle.ConstantTimeCompare(hash, []byte(token.Hash)) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Identity{}, ErrToken
	}
	token := file.tokens[found]
	if !token.Expires.IsZero() && !time.Now().Before(token.Expires) {
		return Identity{}, ErrToken
	}
	return token.identity(), nil
}

// read returns the tokens as the file has them now. It is read again when it is another one than the last time.
func (t *Tokens) read() (*tokenFile, error) {
	path := filepath.Join(t.dir, tokensName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &tokenFile{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	now := stamp{inode: info.Sys().(*syscall.Stat_t).Ino, size: info.Size(), modified: info.ModTime()}
	if last := t.loaded.Load(); last != nil && last.stamp == now {
		return last, nil
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s can be read by others (mode %o): run chmod 600 %[2]s, and revoke its tokens", ErrState, path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	file := &tokenFile{stamp: now}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a bound that is not understood must not be left out
	if err := decoder.Decode(&file.tokens); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrState, path, err)
	}
	t.loaded.Store(file)
	return file, nil
}

// change replaces the file, one process after the other.
func (t *Tokens) change(to func([]Token) ([]Token, error)) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	file, err := t.read()
	if err != nil {
		return err
	}
	tokens, err := to(slices.Clone(file.tokens))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(tokens, "", "  ")
	if err != nil {
		return err
	}
	return t.write(tokensName, append(text, '\n'))
}

func (t *Tokens) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(t.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return func() { file.Close() }, nil
}

// write puts a file in place as a whole, on disk.
func (t *Tokens) write(name string, content []byte) error {
	file, err := os.CreateTemp(t.dir, name+".*") // 0600
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(t.dir, name))
	}
	if err != nil {
		os.Remove(file.Name())
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

// secret is what the gateway signs with, made at the first start.
func (t *Tokens) secret() ([]byte, error) {
	unlock, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := filepath.Join(t.dir, secretName)
	secret, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		secret = make([]byte, 32)
		rand.Read(secret)
		return secret, t.write(secretName, secret)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	case len(secret) != 32:
		return nil, fmt.Errorf("%w: %s has %d bytes and not 32: remove it, and sandboxes get other tokens", ErrState, path, len(secret))
	}
	return secret, nil
}
