package servertest

import (
	"bytes"
	"context"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Screen is what a terminal has shown.
type Screen struct {
	mu     sync.Mutex
	all    bytes.Buffer
	from   int
	change chan struct{}
}

// NewScreen returns one that has shown nothing.
func NewScreen() *Screen { return &Screen{change: make(chan struct{}, 1)} }

// Write shows more.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(p)
	select {
	case s.change <- struct{}{}:
	default:
	}
	return len(p), nil
}

// Text is all of it.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// Await returns once what was shown after the last call matches.
func (s *Screen) Await(t *testing.T, pattern string) {
	t.Helper()
	form := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		text := s.Text()
		if at := form.FindStringIndex(text[s.from:]); at != nil {
			s.from += at[1]
			return
		}
		select {
		case <-s.change:
		case <-ctx.Done():
			t.Fatalf("%q was not shown, but %q", pattern, text[s.from:])
		}
	}
}
