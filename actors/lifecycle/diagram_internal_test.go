package lifecycle

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var update = flag.Bool("update", false, "write the diagrams into state.go and README.md")

// sample is a command by which the diagrams are found, with the name that it has in them. Among them is one of each name in the table.
type sample struct {
	label   string
	command Command
	policy  Policy
}

var restarting = Policy{Spec: &agboxv1.CreateSpec{RestartPolicy: &agboxv1.RestartPolicy{Mode: restartOnFailure}}}

var samples = []sample{
	{"create", Create{}, Policy{}},
	{"create, lazily", Create{Lazy: true}, Policy{}},
	{"create, warm", Create{Warm: true}, Policy{}},
	{"use", Use{}, Policy{}},
	{"resume", Resume{}, Policy{}},
	{"stop", Stop{}, Policy{}},
	{"stop by force", Stop{Force: true}, Policy{}},
	{"drain", Drain{}, Policy{}},
	{"pause", Pause{}, Policy{}},
	{"unpause", Unpause{}, Policy{}},
	{"delete", Delete{}, Policy{}},
	{"a container died", Died{}, Policy{}},
	{"a container died, restarts left", Died{}, restarting},
	{"its command ended", CommandEnded{Fails: true}, Policy{}},
	{"the last exec ended", ExecEnded{ExecID: "exec-1"}, Policy{}},
	{"its actor crashes on", Quarantined{}, Policy{}},
	{"recover exec", RecoverExec{ExecID: "exec-2"}, Policy{}},
	{"start exec", StartExec{ExecID: "exec-1"}, Policy{}},
	{"cancel exec", CancelExec{}, Policy{}},
	{"extend", Extend{}, Policy{}},
	{"detach", Detach{}, Policy{}},
	{"link lost", LinkLost{}, Policy{}},
	{"preparing", Preparing{}, Policy{}},
	{"service reported", ServiceReported{}, Policy{}},
	{"snapshot", Snapshot{ID: "snapshot-1"}, Policy{}},
	{"snapshot ended", SnapshotEnded{ID: "snapshot-1"}, Policy{}},
}

func init() {
	for _, found := range []Phase{Ready, Paused, Stopped, Failed} {
		samples = append(samples, sample{"taken in", Recover{Phase: found}, Policy{}})
	}
	for o := Creating; o <= Restarting; o++ {
		samples = append(samples, sample{Verb(o) + " done", OperationDone{Operation: o}, Policy{}},
			sample{Verb(o) + " failed", OperationFailed{Operation: o}, Policy{}})
	}
}

// edge is a command that leads from one phase and operation to another.
type edge struct{ from, to, label string }

// explore returns every edge that samples lead along, each once, in the order of samples and, of one, in that of the phases.
func explore(t *testing.T, node func(State) string) (edges []edge) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	type key struct {
		Phase
		Operation
		Lazy    bool
		running int
	}
	keyOf := func(s State) key { return key{s.Phase, s.Operation, s.Lazy, len(s.Running)} }
	seen, states := map[key]bool{}, []State{New("box-1", nil)}
	for i := 0; i < len(states); i++ {
		for _, sample := range samples {
			events, err := Decide(states[i], sample.policy, sample.command, now)
			if err != nil {
				continue
			}
			to := states[i]
			for _, e := range events {
				to = Fold(to, e)
			}
			if !seen[keyOf(to)] {
				seen[keyOf(to)] = true
				states = append(states, to)
			}
		}
	}
	slices.SortStableFunc(states, func(a, b State) int { return cmp.Or(int(a.Phase-b.Phase), int(a.Operation-b.Operation)) })
	for _, sample := range samples {
		for _, from := range states {
			events, _ := Decide(from, sample.policy, sample.command, now)
			to := from
			for _, e := range events {
				to = Fold(to, e)
			}
			if e := (edge{node(from), node(to), sample.label}); e.from != e.to && !slices.Contains(edges, e) {
				edges = append(edges, e)
			}
		}
	}
	return edges
}

func phaseName(p Phase) string {
	if p == None {
		return "[*]"
	}
	return strings.TrimPrefix(p.String(), "SANDBOX_STATE_")
}

// exact is every edge between phases with their operations, a line for each command.
func exact(t *testing.T) string {
	edges := explore(t, func(s State) string {
		if s.Operation == NoOperation {
			return phaseName(s.Phase)
		}
		return fmt.Sprintf("%s(%s)", phaseName(s.Phase), Verb(s.Operation))
	})
	var nodes []string
	for _, e := range edges {
		for _, node := range []string{e.from, e.to} {
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	var text strings.Builder
	for len(edges) > 0 {
		first := edges[0]
		var from []string
		edges = slices.DeleteFunc(edges, func(e edge) bool {
			same := e.label == first.label && e.to == first.to
			if same {
				from = append(from, e.from)
			}
			return same
		})
		line := strings.Join(from, " ")
		if rest := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return slices.Contains(from, node) }); len(rest) < len(from) {
			line = "all but " + strings.Join(rest, " ")
		}
		fmt.Fprintf(&text, "//\t%-32s %s → %s\n", first.label, line, first.to)
	}
	return text.String()
}

// rare is left out of the README.
var rare = []string{"its actor crashes on", "taken in"}

// mermaid is every edge between phases but the rare ones; the end of an operation has the operation's name.
func mermaid(t *testing.T) string {
	edges := explore(t, func(s State) string { return phaseName(s.Phase) })
	var text strings.Builder
	for len(edges) > 0 {
		first := edges[0]
		var labels []string
		edges = slices.DeleteFunc(edges, func(e edge) bool {
			same := e.from == first.from && e.to == first.to
			label := strings.TrimSuffix(e.label, " done")
			if same && !slices.Contains(rare, label) && !slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(label, l) }) {
				labels = append(labels, label)
			}
			return same
		})
		if len(labels) == 0 {
			continue
		}
		fmt.Fprintf(&text, "    %s --> %s: %s\n", first.from, first.to, strings.Join(labels, " / "))
	}
	return text.String() + "    DELETED --> [*]\n"
}

// TestDiagramsAreOfTheTable: what stands above State and in the README is what Decide does. With -update it is written there.
func TestDiagramsAreOfTheTable(t *testing.T) {
	for _, r := range table {
		if !slices.ContainsFunc(samples, func(s sample) bool { return s.command.name() == r.command }) {
			t.Errorf("no sample is a %q", r.command)
		}
	}
	for _, d := range []struct{ file, begin, end, text string }{
		{"state.go", "// by command:\n//\n", "//\n// Commands that", exact(t)},
		{"../../README.md", "```mermaid\nstateDiagram-v2\n", "```\n", mermaid(t)},
	} {
		content, err := os.ReadFile(d.file)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, found := strings.Cut(string(content), d.begin)
		old, tail, ended := strings.Cut(rest, d.end)
		if !found || !ended {
			t.Fatalf("%s has no place for the diagram: %q, then %q", d.file, d.begin, d.end)
		}
		if old == d.text {
			continue
		}
		if !*update {
			t.Errorf("%s is stale: go test ./actors/lifecycle -update; it is to be\n%s", d.file, d.text)
			continue
		}
		if err := os.WriteFile(d.file, []byte(head+d.begin+d.text+d.end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
