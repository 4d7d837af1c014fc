package e2b

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// Labels of a sandbox that was made over this wire. LabelKind selects those; a label for each metadatum has selectors find it.
const (
	LabelKind     = "e2b/kind"
	KindSandbox   = "sandbox"
	labelNote     = "e2b/note"
	labelMetadata = "e2b/metadata/"
)

// note is what E2B knows of a sandbox and agbox does not. It is written once, with the sandbox.
type note struct {
	// Template is what list filters by, Alias its configured name if it has one.
	Template string `json:"template"`
	Alias    string `json:"alias,omitempty"`
	// Metadata are the keys of the sandbox's own metadata: one that was made from a snapshot has labels of the other's as well.
	Metadata []string `json:"metadata,omitempty"`
	// Timeout is what an auto-resume gives, in seconds.
	Timeout    int64 `json:"timeout"`
	AutoPause  bool  `json:"autoPause,omitempty"`
	AutoResume bool  `json:"autoResume,omitempty"`
	// ForgetMemory: at the end of its time it is stopped, not frozen.
	ForgetMemory bool `json:"forgetMemory,omitempty"`
	// InternetAccess and Network are as they were given.
	InternetAccess *bool           `json:"internetAccess,omitempty"`
	Network        json.RawMessage `json:"network,omitempty"`
	CPUs           float64         `json:"cpus,omitempty"`
	MemoryBytes    int64           `json:"memory,omitempty"`
	// Made is what the steps of a template have set, of a template only.
	Made *madeNote `json:"made,omitempty"`
}

type madeNote struct {
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Start   string            `json:"start,omitempty"`
	Ready   string            `json:"ready,omitempty"`
}

// labels are those of a sandbox with this note and metadata.
func (n note) labels(metadata map[string]string) (map[string]string, error) {
	n.Metadata = slices.Sorted(maps.Keys(metadata))
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{LabelKind: KindSandbox, labelNote: string(text)}
	maps.Copy(labels, metadataLabels(metadata))
	return labels, nil
}

func metadataLabels(metadata map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range metadata {
		labels[labelMetadata+key] = value
	}
	return labels
}

// noteOf reads a sandbox's note; found says whether it is one of this wire's.
func noteOf(labels map[string]string) (n note, found bool) {
	if labels[LabelKind] != KindSandbox || json.Unmarshal([]byte(labels[labelNote]), &n) != nil {
		return note{}, false
	}
	return n, true
}

// metadata is the sandbox's own.
func (n note) metadata(labels map[string]string) map[string]string {
	metadata := map[string]string{}
	for _, key := range n.Metadata {
		metadata[key] = labels[labelMetadata+key]
	}
	return metadata
}

// carries reports whether the metadata has all that is asked for.
func carries(metadata, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, has := metadata[key]; !has || got != value {
			return false
		}
	}
	return true
}

// Timeout is the life that a request for a paused sandbox gives it, 0 where it is not to be resumed by one.
func Timeout(labels map[string]string) time.Duration {
	n, found := noteOf(labels)
	if !found || !n.AutoResume {
		return 0
	}
	return time.Duration(n.Timeout) * time.Second
}

// What the wire calls a sandbox's state.
const (
	running = "running"
	paused  = "paused"
)

// stateOf is the state as the wire has it, "" for a sandbox that is gone.
func stateOf(state sdk.State) string {
	switch state {
	case sdk.StateReady, sdk.StateDraining, sdk.StateDormant, sdk.StatePending:
		return running
	case sdk.StatePaused, sdk.StateStopped:
		return paused
	}
	return ""
}

// agboxStates are those that the wire calls so.
func agboxStates(states []string) []sdk.State {
	var list []sdk.State
	for _, state := range []sdk.State{sdk.StateReady, sdk.StateDraining, sdk.StateDormant, sdk.StatePending, sdk.StatePaused, sdk.StateStopped} {
		if slices.Contains(states, stateOf(state)) {
			list = append(list, state)
		}
	}
	return list
}

// trimAlias cuts what stands for a default before and after a name.
func trimAlias(name string) string { return strings.TrimSuffix(name, ":"+defaultTag) }
