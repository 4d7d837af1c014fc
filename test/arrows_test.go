// Package test_test checks what is true of the house as a whole.
package test_test

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/agbox-dev/agbox/"

// rooms says what each package may import of ours; "x/..." is x and all that is below it. A room without a line of its own
// has that of the folder above. Tests may import what they like; nobody else imports what is for tests.
var rooms = map[string]string{
	// What people use knows the daemon's wire and nothing else of it.
	"cmd/agbox": "cmd/agbox/... gateway/... sdk sdk/raw proto/... text",
	"sdk":       "sdk/raw sdk/apply sdk/pack proto/...",
	"sdk/raw":   "proto/...",
	"sdk/apply": "",
	"sdk/pack":  "",

	// The gateway is a client of the wire, too. What a create request says it reads as the daemon does.
	"gateway":        "gateway/... sdk/... proto/... text",
	"gateway/access": "ranges server/spec proto/... text",
	"gateway/route":  "",
	"gateway/bound":  "",
	"gateway/ports":  "gateway/bound gateway/route sdk",
	"gateway/e2b":    "gateway/build ranges sdk proto/...",
	"gateway/build":  "gateway/bound sdk proto/...",
	"gateway/envd":   "gateway/bound gateway/envd/... gateway/route sdk/raw proto/...",

	// The daemon: each asks those after it.
	"cmd/agboxd":       "server/... actors actors/pool actors/runtime dockerrt/... persist hostpath proto/... sdk/raw",
	"server":           "server/... actors actors/lifecycle actors/runtime persist execlog guest/files guest/protocol hosttree/... proto/... text",
	"server/spec":      "paths hosttree hostpath proto/... text",
	"actors":           "paths actors/lifecycle actors/orphan actors/pool actors/runtime persist hostpath proto/... text",
	"actors/lifecycle": "actors/runtime proto/... text",
	"actors/orphan":    "actors/runtime persist",
	"actors/pool":      "actors/runtime proto/...",
	"actors/runtime":   "proto/...",
	"persist":          "proto/...",

	// What knows Docker implements actors/runtime and does not know who asks.
	"dockerrt": "paths ranges dockerrt/... actors/runtime guest/... execlog oplog hosttree/... hostpath proto/... text",

	// The program inside a sandbox, and the way to it.
	"cmd/agbox-init": "guest/...",
	"guest":          "paths guest/... proto/... text",

	// What stands by itself.
	"execlog":  "guest/protocol text",
	"keyed":    "",
	"oplog":    "keyed proto/... text",
	"hosttree": "paths hosttree/... hostpath",
	"hostpath": "paths proto/...",
	"paths":    "",
	"ranges":   "",
	"text":     "",
	"proto":    "proto/...",

	// What is for tests.
	"actors/actorstest": "paths actors/runtime guest/files guest/protocol hosttree/... proto/...",
	"sdk/sdktest":       "server/... actors/... persist proto/...",
	"test":              "server/... actors/... dockerrt/... gateway/... guest/... sdk/... persist hostpath proto/... test/... text",
	"cmd/agbox-bench":   "test/bench/...",
	"cmd/agbox-chaos":   "test/...",
}

// TestArrows: packages import what the table says and nothing else of ours.
func TestArrows(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...")
	list.Dir = ".."
	output, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		allowed, found := room(from)
		if !found {
			t.Errorf("%s has no line in the table", from)
		}
		for _, to := range fields[1:] {
			if to, ours := strings.CutPrefix(to, module); ours && !allows(allowed, to) {
				t.Errorf("%s imports %s; it may import: %s", from, to, allowed)
			}
		}
	}
}

func room(of string) (allowed string, found bool) {
	for {
		if allowed, found = rooms[of]; found {
			return allowed, true
		}
		end := strings.LastIndex(of, "/")
		if end < 0 {
			return "", false
		}
		of = of[:end]
	}
}

// allows says whether the package is among the patterns.
func allows(patterns, name string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		below, tree := strings.CutSuffix(pattern, "/...")
		if name == below || tree && strings.HasPrefix(name, below+"/") {
			return true
		}
	}
	return false
}
