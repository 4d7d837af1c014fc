package e2b

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/gateway/build"
	"github.com/agbox-dev/agbox/sdk"
)

const (
	kindTemplate = "template"
	// aPage is how many lines of a build's log an answer has.
	aPage = 100
	// baseImage is what SDKs name that were told no base: E2B's own image, for which base stands here.
	baseImage = "e2bdev/base"
)

// templateName is a name, maybe with a tag.
var templateName = regexp.MustCompile(`^[a-z0-9_-]{1,128}(:[a-zA-Z0-9._-]{1,128})?$`)

// builds are the calls about templates that are built. Their methods are answers.
type builds struct{ *Handler }

func (b builds) route() map[string]answer {
	calls := map[string]answer{
		"POST /v3/templates":                        b.begin,
		"GET /templates/{id}/files/{hash}":          b.files,
		"POST /v2/templates/{id}/builds/{build}":    b.start,
		"GET /templates/{id}/builds/{build}/status": b.status,
		"GET /templates/{id}/{part}":                b.tags, // a name for the part would be ambiguous beside aliases/{alias}
	}
	for pattern, do := range calls {
		calls[pattern] = func(c *call) (int, any, error) {
			if b.config.Builds == nil {
				return 0, nil, refused(http.StatusNotImplemented, "this gateway builds no templates")
			}
			return do(c)
		}
	}
	return calls
}

// maxTags are those of one build.
const maxTags = 16

type templateRequest struct {
	Name     string   `json:"name"`
	Tags     []string `json:"tags"`
	CPUCount float64  `json:"cpuCount"`
	MemoryMB int64    `json:"memoryMB"`
}

// begin gives a template and its build their ids. Nothing is made yet.
func (b builds) begin(c *call) (int, any, error) {
	var request templateRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	if !templateName.MatchString(request.Name) {
		return 0, nil, refused(http.StatusBadRequest, "name is %q: give name or name:tag of [a-z0-9_-]", request.Name)
	}
	name, tag, tagged := strings.Cut(request.Name, ":")
	if _, configured := b.config.Templates[name]; configured {
		return 0, nil, refused(http.StatusBadRequest, "template %q is the configuration's: choose another name", name)
	}
	tags := slices.Clone(request.Tags)
	if tagged {
		tags = append(tags, tag)
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	if len(tags) > maxTags {
		return 0, nil, refused(http.StatusBadRequest, "there are %d tags: give at most %d", len(tags), maxTags)
	}
	for _, t := range tags {
		if !templateName.MatchString("x:" + t) {
			return 0, nil, refused(http.StatusBadRequest, "tag %q: give some of [a-zA-Z0-9._-]", t)
		}
	}
	made, err := b.config.Builds.New(build.Build{
		Owner: b.config.Owner(c.Request), Template: newID('t'), Name: name, Tags: tags,
		CPUs: max(request.CPUCount, 0), MemoryBytes: max(request.MemoryMB, 0) << 20,
	})
	if errors.Is(err, build.ErrFull) {
		err = refused(http.StatusInsufficientStorage, "%s", err)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, map[string]any{
		"templateID": made.Template, "buildID": made.ID, "public": false, "aliases": []string{name}, "names": []string{name}, "tags": tags,
	}, nil
}

// build is the one that the path names, if it is the caller's.
func (b builds) build(c *call) (build.Build, error) {
	made, err := b.config.Builds.Get(b.config.Owner(c.Request), c.PathValue("build"))
	if errors.Is(err, build.ErrNone) || err == nil && made.Template != c.PathValue("id") {
		err = refused(http.StatusNotFound, "template %q has no build %q", c.PathValue("id"), c.PathValue("build"))
	}
	return made, err
}

type startRequest struct {
	FromImage    string          `json:"fromImage"`
	FromTemplate string          `json:"fromTemplate"`
	Registry     json.RawMessage `json:"fromImageRegistry"`
	Steps        []build.Step    `json:"steps"`
	StartCmd     string          `json:"startCmd"`
	ReadyCmd     string          `json:"readyCmd"`
}

// start has the steps done, and answers before they are.
func (b builds) start(c *call) (int, any, error) {
	var request startRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	made, err := b.build(c)
	if err != nil {
		return 0, nil, err
	}
	if given(request.Registry) {
		return 0, nil, refused(http.StatusBadRequest, "fromImageRegistry is not offered by agbox: agboxd pulls with the credentials of its own user's docker login")
	}
	from, err := b.base(c, request)
	if err != nil {
		return 0, nil, err
	}
	plan := build.Plan{From: from.snapshot, Steps: request.Steps, Spec: sdk.Spec{
		Image: from.Image, AllowNewPrivileges: from.trusted, Limits: sdk.Limits{CPULimit: made.CPUs, MemoryLimit: made.MemoryBytes},
		Labels: map[string]string{LabelKind: "build"},
	}}
	plan.Labels = func(result build.Result) (map[string]string, error) {
		n := note{
			Template: made.Template, Alias: made.Name, CPUs: made.CPUs, MemoryBytes: made.MemoryBytes,
			Made: &madeNote{Env: result.Env, User: result.User, Workdir: result.Workdir, Start: request.StartCmd, Ready: request.ReadyCmd},
		}
		text, err := json.Marshal(n)
		return map[string]string{LabelKind: kindTemplate, labelNote: string(text), labelName: made.Name,
			labelTag: strings.Join(made.Tags, ","), labelBuild: made.ID}, err
	}
	err = b.config.Builds.Start(c.client, made, plan)
	switch {
	case errors.Is(err, build.ErrStarted):
		return 0, nil, refused(http.StatusConflict, "%s", err)
	case errors.Is(err, build.ErrFull):
		return 0, nil, refused(http.StatusTooManyRequests, "%s", err)
	case err != nil:
		return 0, nil, err
	}
	return http.StatusAccepted, nil, nil
}

// base is what a build begins with.
func (b builds) base(c *call, request startRequest) (source, error) {
	image, _, _ := strings.Cut(request.FromImage, ":")
	switch {
	case request.FromTemplate != "":
		return c.resolve(request.FromTemplate)
	case image == "" || image == baseImage:
		if _, found := b.config.Templates["base"]; found {
			return c.resolve("base")
		}
		return source{Template: Template{Image: cmp.Or(request.FromImage, baseImage)}}, nil
	}
	return source{Template: Template{Image: request.FromImage}}, nil
}

func (b builds) status(c *call) (int, any, error) {
	offset, err := c.number("logsOffset", 0, 0, farAway)
	if err != nil {
		return 0, nil, err
	}
	limit, err := c.number("limit", aPage, 0, aPage)
	if err != nil {
		return 0, nil, err
	}
	made, err := b.build(c)
	if err != nil {
		return 0, nil, err
	}
	entries := made.Log[min(offset, int64(len(made.Log))):]
	status := map[string]any{
		"templateID": made.Template, "buildID": made.ID, "status": made.Status, "logs": []string{},
		"logEntries": slices.Clip(append([]build.Entry{}, entries[:min(limit, int64(len(entries)))]...)),
	}
	if made.Reason != nil {
		status["reason"] = made.Reason
	}
	return http.StatusOK, status, nil
}

// tags are those of a template that was built here.
func (b builds) tags(c *call) (int, any, error) {
	if part := c.PathValue("part"); part != "tags" {
		return 0, nil, refused(http.StatusNotFound, "a template has no %q", part)
	}
	k, err := c.kept(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	type tag struct {
		Tag       string    `json:"tag"`
		BuildID   string    `json:"buildID"`
		CreatedAt time.Time `json:"createdAt"`
	}
	list := []tag{}
	for _, t := range k.tags() {
		list = append(list, tag{t, cmp.Or(k.Labels[labelBuild], noBuild), k.CreatedAt})
	}
	return http.StatusOK, list, nil
}
