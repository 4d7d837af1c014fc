package checker

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Kind is what may be wrong.
type Kind string

const (
	LostExitCode     Kind = "exit codes lost"
	WrongExitCode    Kind = "exit codes wrong"
	WrongOutput      Kind = "log files that are not what was written"
	Gap              Kind = "sequence gaps"
	Duplicate        Kind = "sequence duplicates"
	LostEvent        Kind = "events told and not in the log, or told otherwise"
	LostOperation    Kind = "acknowledged operations lost"
	BrokenLog        Kind = "logs that break the contract"
	Unexplained      Kind = "sandboxes failed without a cause"
	Stuck            Kind = "sandboxes that came to no rest"
	Missing          Kind = "containers or networks missing"
	LostSnapshot     Kind = "snapshots lost"
	WrongFile        Kind = "uploaded files lost or changed"
	LeakedImage      Kind = "images leaked"
	LeakedContainer  Kind = "containers leaked"
	LeakedNetwork    Kind = "networks leaked"
	SharedNetwork    Kind = "networks of two sandboxes"
	SharedPlace      Kind = "places of two sandboxes"
	LeakedVolume     Kind = "volumes leaked"
	HostChanged      Kind = "files of the host changed"
	LeakedDirectory  Kind = "directories leaked"
	LeakedSocket     Kind = "sockets leaked"
	LeakedProcess    Kind = "processes leaked"
	InconsistentView Kind = "answers that differ from the log"
	BadAnswer        Kind = "valid requests answered with a failure"
)

// Kinds are all, in the order in which they are printed.
var Kinds = []Kind{LostExitCode, WrongExitCode, WrongOutput, Gap, Duplicate, LostEvent, LostOperation, BrokenLog,
	InconsistentView, BadAnswer, Unexplained, Stuck, Missing, LostSnapshot, WrongFile, HostChanged, LeakedImage,
	LeakedContainer, LeakedNetwork, SharedNetwork, SharedPlace, LeakedVolume, LeakedDirectory, LeakedSocket, LeakedProcess}

// Violation is one thing that is wrong.
type Violation struct {
	Kind Kind
	// Subject is the id of a sandbox or exec, or the name of an object.
	Subject string
	Text    string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Subject, v.Text) }

// Report is what was found, each thing once however often it was looked at. Methods may be called from any
// goroutine.
type Report struct {
	mu         sync.Mutex
	violations []Violation
	known      map[Violation]bool
	execs      map[string]bool
	operations int
	sandboxes  int
	events     uint64
}

func newReport() *Report { return &Report{known: map[Violation]bool{}, execs: map[string]bool{}} }

// Add reports what somebody else has found.
func (r *Report) Add(kind Kind, subject, text string) { r.add(kind, subject, "%s", text) }

func (r *Report) add(kind Kind, subject, format string, arguments ...any) {
	v := Violation{kind, subject, fmt.Sprintf(format, arguments...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known[v] {
		r.known[v] = true
		r.violations = append(r.violations, v)
	}
}

// Violations returns what is wrong, in the order in which it was found.
func (r *Report) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Print writes the figures: what was looked at, and how often each Kind was found.
func (r *Report) Print(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "sandboxes\t%d\n", r.sandboxes)
	fmt.Fprintf(table, "operations acknowledged\t%d\n", r.operations)
	fmt.Fprintf(table, "execs ended\t%d\n", len(r.execs))
	fmt.Fprintf(table, "events\t%d\n", r.events)
	for _, kind := range Kinds {
		count := 0
		for _, v := range r.violations {
			if v.Kind == kind {
				count++
			}
		}
		fmt.Fprintf(table, "%s\t%d\n", kind, count)
	}
	return table.Flush()
}

// Details writes a line for each violation.
func (r *Report) Details(w io.Writer) error {
	var text strings.Builder
	for _, v := range r.Violations() {
		fmt.Fprintln(&text, v)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
