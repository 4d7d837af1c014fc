// Package paths says where a clean absolute path lies: in another one, or in what a sandbox has for itself. It stands by itself;
// agbox-init has it too.
package paths

import "strings"

// Where things are inside a sandbox.
const (
	// Home holds agbox-init and what it needs.
	Home = "/.agbox"
	// Logs holds the output of commands.
	Logs = "/var/log/agents-sandbox"
	// Workspace is where commands begin that say nothing else.
	Workspace = "/workspace"
)

// Within reports whether the clean path is dir or lies in it.
func Within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Reserved returns the directory that the clean path of a sandbox lies in, of those in which nobody may mount, write or remove
// anything: the sandbox's own files, and what the kernel provides. It returns "" for any other path.
func Reserved(path string) string {
	for _, dir := range [...]string{Home, "/proc", "/sys", "/dev", Logs} {
		if Within(path, dir) {
			return dir
		}
	}
	return ""
}
