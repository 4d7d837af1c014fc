package e2b

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/sdk"
)

// Labels of a snapshot that was made over this wire, beside the note of what it was made from.
const (
	kindSnapshot = "snapshot"
	labelName    = "e2b/name"
	labelTag     = "e2b/tag" // several have commas between them
	labelBuild   = "e2b/build"
)

var snapshotName = regexp.MustCompile(`^[a-z0-9_-]{1,128}(:[a-z0-9._-]{1,128})?$`)

// errNoTemplate: there is no snapshot of this name.
var errNoTemplate error = refused(http.StatusNotFound, "there is no such snapshot or template")

type snapshotAnswer struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// kept is a snapshot, with the note of what it was made from.
type kept struct {
	sdk.Snapshot
	note note
}

// names are those by which the snapshot is known: as it was named.
func (k kept) names() []string {
	names := []string{}
	for _, tag := range k.tags() {
		if tag == defaultTag {
			names = append(names, k.Labels[labelName])
		} else {
			names = append(names, k.Labels[labelName]+":"+tag)
		}
	}
	return names
}

// tags are those of its name, if it has one.
func (k kept) tags() []string {
	if k.Labels[labelName] == "" {
		return nil
	}
	return strings.Split(k.Labels[labelTag], ",")
}

// called reports whether this is a name of the snapshot; of one without a tag, that is the default's.
func (k kept) called(name string) bool {
	bare, tag, tagged := strings.Cut(name, ":")
	if !tagged {
		tag = defaultTag
	}
	return name == k.ID || bare == k.Labels[labelName] && slices.Contains(k.tags(), tag)
}

func keptOf(s sdk.Snapshot) kept {
	k := kept{Snapshot: s}
	if json.Unmarshal([]byte(s.Labels[labelNote]), &k.note) != nil {
		k.note = note{Template: s.ID} // it was not made over this wire
	}
	return k
}

// kept finds a snapshot by its id or, of those of the sender's own, by its name: of several with one name, the newest. Otherwise it fails
// with errNoTemplate. Another's name is nothing to go by: whoever sees more than one maker would run what one of them chose.
func (c *call) kept(name string) (kept, error) {
	list, err := c.client.ListSnapshots(c.Context(), sdk.SnapshotFilter{})
	if err != nil {
		return kept{}, err
	}
	bare, _, _ := strings.Cut(name, ":")
	missing := errNoTemplate
	for _, s := range list {
		k := keptOf(s)
		if s.Fork || k.ID != name && !c.config.Made(c.Request, s.Labels) {
			continue
		}
		if k.called(name) {
			return k, nil
		}
		if bare == k.Labels[labelName] && bare != "" {
			missing = refused(http.StatusNotFound, "%q has no tag of this name: it has %s", name, strings.Join(k.names(), ", "))
		}
	}
	return kept{}, missing
}

func (c *call) snapshot() (int, any, error) {
	var request struct {
		Name string `json:"name"`
	}
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	if request.Name != "" && !snapshotName.MatchString(request.Name) {
		return 0, nil, refused(http.StatusBadRequest, "name is %q: give name or name:tag of [a-z0-9_-]", request.Name)
	}
	b, err := c.running()
	if err != nil {
		return 0, nil, err
	}
	name, tag, tagged := strings.Cut(request.Name, ":")
	labels := map[string]string{LabelKind: kindSnapshot, labelNote: b.Labels[labelNote]}
	if name != "" {
		if !tagged {
			tag = defaultTag
		}
		labels[labelName], labels[labelTag] = name, tag
	}
	made, err := c.client.Snapshot(c.Context(), b.ID, sdk.SnapshotRequest{ID: newID('s'), Labels: labels})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, snapshotAnswer{made.ID, keptOf(made).names()}, nil
}

// snapshots lists those that were made over this wire, newest first.
func (c *call) snapshots() (int, any, error) {
	q := c.URL.Query()
	limit, err := c.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return 0, nil, err
	}
	var from *cursor
	if token := q.Get("nextToken"); token != "" {
		k, err := cursorOf(token, "desc")
		if err != nil {
			return 0, nil, err
		}
		from = &k
	}
	found, err := c.client.ListSnapshots(c.Context(), sdk.SnapshotFilter{SandboxID: q.Get("sandboxID"), Labels: map[string]string{LabelKind: kindSnapshot}})
	if err != nil {
		return 0, nil, err
	}
	slices.SortFunc(found, func(a, b sdk.Snapshot) int { return cursor{At: b.CreatedAt, ID: b.ID}.compare(a.CreatedAt, a.ID) })
	page, more := []snapshotAnswer{}, false
	var last cursor
	for _, s := range found {
		k := keptOf(s)
		if from != nil && from.compare(s.CreatedAt, s.ID) <= 0 {
			continue
		}
		if name := q.Get("name"); name != "" && !k.called(name) && name != k.Labels[labelName] {
			continue
		}
		if more = int64(len(page)) == limit; more {
			break
		}
		page, last = append(page, snapshotAnswer{s.ID, k.names()}), cursor{"desc", s.CreatedAt, s.ID}
	}
	if more {
		c.header.Set("X-Next-Token", last.String())
	}
	return http.StatusOK, page, nil
}
