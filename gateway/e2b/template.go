package e2b

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// defaultTag is the tag of a name that has none.
const defaultTag = "default"

// source is what a sandbox is made from: an image, or a snapshot.
type source struct {
	Template
	// template is what lists filter by: the alias, or the image's reference.
	template, alias string
	snapshot        string
	made            madeNote
	// trusted: an operator chose the image, so that setuid programs in it, such as sudo, work.
	trusted bool
}

// resolve finds what a templateID names: an alias of the configuration, a snapshot by its id or name, or an image by its reference.
// A bare word is no image's reference: a misspelled alias is not found, instead of being asked of a registry.
func (c *call) resolve(name string) (source, error) {
	alias := trimAlias(name)
	if t, found := c.config.Templates[alias]; found {
		return source{Template: t, template: alias, alias: alias, trusted: true}, nil
	}
	kept, err := c.kept(name)
	if err == nil {
		n := kept.note
		from := source{template: n.Template, alias: n.Alias, snapshot: kept.ID, Template: Template{CPUs: n.CPUs, MemoryBytes: n.MemoryBytes}}
		if n.Made != nil {
			from.made = *n.Made
		}
		return from, nil
	}
	if !errors.Is(err, errNoTemplate) {
		return source{}, err
	}
	if !strings.ContainsAny(name, "/:@") {
		return source{}, refused(http.StatusNotFound,
			"template %q was not found: it is no alias under gateway.e2b.templates in the configuration, no snapshot, and no image's reference", name)
	}
	return source{Template: Template{Image: name}, template: name}, nil
}

// templateAnswer is a template in a list.
type templateAnswer struct {
	TemplateID  string    `json:"templateID"`
	BuildID     string    `json:"buildID"`
	Public      bool      `json:"public"`
	Aliases     []string  `json:"aliases"`
	Names       []string  `json:"names"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	DiskSizeMB  int       `json:"diskSizeMB"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	EnvdVersion string    `json:"envdVersion"`
	BuildStatus string    `json:"buildStatus"`
	SpawnCount  int       `json:"spawnCount"`
	BuildCount  int       `json:"buildCount"`
}

// templates lists the configuration's and those that were built.
func templates(c *call) (int, any, error) {
	list := []templateAnswer{}
	for alias, t := range c.config.Templates {
		l := box{note: note{Template: alias, Alias: alias, CPUs: t.CPUs, MemoryBytes: t.MemoryBytes}}.listed()
		list = append(list, templateAnswer{TemplateID: alias, BuildID: noBuild, Aliases: []string{alias}, Names: []string{alias},
			CPUCount: l.CPUCount, MemoryMB: l.MemoryMB, EnvdVersion: EnvdVersion, BuildStatus: "ready"})
	}
	built, err := c.client.ListSnapshots(c.Context(), sdk.SnapshotFilter{Labels: map[string]string{LabelKind: kindTemplate}})
	if err != nil {
		return 0, nil, err
	}
	for _, s := range built {
		k := keptOf(s)
		l := box{note: k.note}.listed()
		list = append(list, templateAnswer{TemplateID: k.ID, BuildID: k.Labels[labelBuild], Aliases: []string{k.Labels[labelName]}, Names: k.names(),
			CPUCount: l.CPUCount, MemoryMB: l.MemoryMB, CreatedAt: k.CreatedAt, UpdatedAt: k.CreatedAt, EnvdVersion: EnvdVersion, BuildStatus: "ready", BuildCount: 1})
	}
	slices.SortFunc(list, func(a, b templateAnswer) int { return strings.Compare(a.TemplateID, b.TemplateID) })
	return http.StatusOK, list, nil
}

// noBuild is the build of what was not built here.
const noBuild = "00000000-0000-0000-0000-000000000000"

func templateByAlias(c *call) (int, any, error) {
	name := c.PathValue("alias")
	from, err := c.resolve(name)
	if err == nil && from.alias == "" && from.snapshot == "" {
		err = refused(http.StatusNotFound, "template %q was not found", name)
	}
	if err != nil {
		return 0, nil, err
	}
	id := from.template
	if from.snapshot != "" {
		id = from.snapshot
	}
	return http.StatusOK, map[string]any{"templateID": id, "public": false}, nil
}

// deleteTemplate deletes a snapshot. A sandbox that was made from it and is being deleted is waited for.
func (c *call) deleteTemplate() (int, any, error) {
	name := c.PathValue("id")
	if _, configured := c.config.Templates[trimAlias(name)]; configured {
		return 0, nil, refused(http.StatusBadRequest, "template %q is the configuration's: take it out of gateway.e2b.templates instead", name)
	}
	kept, err := c.kept(name)
	if err != nil {
		return 0, nil, err
	}
	err = c.client.DeleteSnapshot(c.Context(), kept.ID)
	if errors.Is(err, sdk.ErrSnapshotInUse) {
		if err = c.awaitDeleted(kept.Image); err != nil {
			return 0, nil, err
		}
		err = c.client.DeleteSnapshot(c.Context(), kept.ID)
	}
	if errors.Is(err, sdk.ErrSnapshotInUse) {
		return 0, nil, refused(http.StatusBadRequest, "%s", err)
	}
	return http.StatusNoContent, nil, err
}

// awaitDeleted waits for those sandboxes of an image that are being deleted.
func (c *call) awaitDeleted(image string) error {
	going, err := c.client.ListSandboxes(c.Context(), sdk.Filter{States: []sdk.State{sdk.StateDeleting}})
	for _, s := range going {
		if s.Image == image && err == nil {
			_, _, err = c.client.WaitSandbox(c.Context(), s.ID, 0, sdk.StateDeleted)
		}
	}
	return err
}
