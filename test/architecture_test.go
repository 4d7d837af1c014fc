package test_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named are the files and folders that a document names, by their path from the top or from a room's.
var named = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9_-]+)*(?:/[a-z0-9_.-]+\\.(?:go|md)|\\.go)?)`")

// TestArchitecture: what ARCHITECTURE.md names is there.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, match := range named.FindAllStringSubmatch(string(text), -1) {
		path := match[1]
		if !strings.Contains(path, "/") {
			continue
		}
		found++
		if !exists(path) {
			t.Errorf("ARCHITECTURE.md names %s, and there is no such file", path)
		}
	}
	if found < 10 {
		t.Errorf("only %d paths were found in ARCHITECTURE.md", found)
	}
}

// exists reports whether the path leads somewhere from the top, or from one room.
func exists(path string) bool {
	for _, room := range []string{"", "actors", "guest", "dockerrt", "server"} {
		if _, err := os.Stat(filepath.Join("..", room, path)); err == nil {
			return true
		}
	}
	return false
}
