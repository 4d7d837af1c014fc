package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

type createRequest struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	InternetAccess *bool           `json:"allow_internet_access"`
	Network        json.RawMessage `json:"network"`
	IAM            json.RawMessage `json:"iam"`
	VolumeMounts   json.RawMessage `json:"volumeMounts"`
}

// create makes a sandbox that is ready to use when it answers, or none.
func (c *call) create(otherwise time.Duration) (int, any, error) {
	var request createRequest
	if err := c.read(&request); err != nil {
		return 0, nil, err
	}
	spec, n, err := c.spec(&request, otherwise)
	if err != nil {
		return 0, nil, err
	}
	from, err := c.resolve(request.TemplateID)
	if err != nil {
		return 0, nil, err
	}
	n.Template, n.Alias, n.CPUs, n.MemoryBytes = from.template, from.alias, from.CPUs, from.MemoryBytes
	spec.Image, spec.AllowNewPrivileges = from.Image, from.trusted
	spec.CPULimit, spec.MemoryLimit = from.CPUs, from.MemoryBytes
	from.made.lay(&spec)
	if spec.Labels, err = n.labels(request.Metadata); err != nil {
		return 0, nil, err
	}
	id := newID('i')
	maps.Copy(spec.Env, environment(id, n.Template))
	made, err := c.make(id, func(ctx context.Context) (sdk.Sandbox, error) {
		return c.client.CreateSandbox(ctx, spec, sdk.WithSandboxID(id), sdk.FromSnapshot(from.snapshot))
	})
	if err != nil {
		return 0, nil, err
	}
	if err := c.awaitStarted(made, from.made.Ready); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, c.answer(made), nil
}

// lay gives the sandbox what its template's steps have set, as far as the request does not say otherwise.
func (m madeNote) lay(spec *sdk.Spec) {
	for name, value := range m.Env {
		if _, given := spec.Env[name]; !given {
			spec.Env[name] = value
		}
	}
	spec.User, spec.WorkingDir = m.User, m.Workdir
	if m.Start != "" {
		spec.Command, spec.OnCommandEnd = []string{"/bin/sh", "-c", m.Start}, sdk.CommandEndKeeps
	}
}

// awaitStarted returns when the template's own question whether it is ready has a yes. A sandbox that does not get there is deleted.
func (c *call) awaitStarted(b box, ready string) error {
	if ready == "" {
		return nil
	}
	_, err := c.make(b.ID, func(ctx context.Context) (sdk.Sandbox, error) {
		result, err := c.client.Run(ctx, b.ID, []string{"/bin/sh", "-c", `until /bin/sh -c "$AGBOX_READY"; do sleep 0.2; done`},
			sdk.WithEnv(map[string]string{"AGBOX_READY": ready}), sdk.WithTimeout(patience), sdk.WithMaxLog(1<<20))
		if err == nil && result.ExitCode != 0 {
			err = refused(http.StatusGatewayTimeout, "the template's ready command has not succeeded within %s: %s", patience, ready)
		}
		return b.Sandbox, err
	})
	return err
}

// make returns a sandbox once it is READY. One that does not get there, or whose caller is gone, is deleted: nobody knows its id.
func (c *call) make(id string, create func(context.Context) (sdk.Sandbox, error)) (box, error) {
	s, err := create(c.Context())
	if err == nil {
		if b, found := boxOf(s); found {
			return b, nil
		}
		err = &sdk.SandboxDeletedError{ID: id}
	}
	ctx, cancel := c.aside()
	defer cancel()
	if undone := c.client.Delete(ctx, id, sdk.WithWait(false)); undone != nil && !errors.Is(undone, sdk.ErrSandboxNotFound) {
		c.config.Log.Warn("a sandbox whose create failed stays until its time is over", "sandbox", id, "error", undone)
	}
	return box{}, err
}

// environment is what a sandbox's commands know of it.
func environment(id, template string) map[string]string {
	return map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": id, "E2B_TEMPLATE_ID": template}
}

// spec is what the request says about the sandbox beside what it is made from.
func (c *call) spec(r *createRequest, otherwise time.Duration) (sdk.Spec, note, error) {
	life, err := timeoutOf(r.Timeout, otherwise)
	if err != nil {
		return sdk.Spec{}, note{}, err
	}
	n := note{
		Timeout: int64(life / time.Second), AutoPause: r.AutoPause, AutoResume: r.AutoResume != nil && r.AutoResume.Enabled,
		ForgetMemory: r.AutoPauseMemory != nil && !*r.AutoPauseMemory, InternetAccess: r.InternetAccess,
	}
	switch {
	case r.TemplateID == "":
		err = refused(http.StatusBadRequest, "templateID is missing")
	case n.ForgetMemory && !n.AutoPause:
		err = refused(http.StatusBadRequest, "autoPauseMemory is false, which needs autoPause")
	case n.ForgetMemory && n.AutoResume:
		err = refused(http.StatusBadRequest, "autoPauseMemory is false: a sandbox that has to start anew is not resumed by a request; leave autoResume out")
	case given(r.IAM):
		err = refused(http.StatusBadRequest, "iam is not offered by agbox: give the sandbox what it needs by envVars")
	case given(r.VolumeMounts):
		err = refused(http.StatusBadRequest, "volumeMounts are not offered by agbox: upload files, or make the sandbox from a snapshot")
	}
	if err != nil {
		return sdk.Spec{}, note{}, err
	}
	network, err := networkOf(r.Network, r.InternetAccess)
	if err != nil {
		return sdk.Spec{}, note{}, err
	}
	if given(r.Network) {
		n.Network = shownNetwork(r.Network)
	}
	spec := sdk.Spec{Env: map[string]string{}, IdleTTL: sdk.NeverIdle, MaxDuration: life, OnExpiry: n.onExpiry(), Network: network}
	maps.Copy(spec.Env, r.EnvVars)
	return spec, n, nil
}

// onExpiry is what becomes of the sandbox when its life is over.
func (n note) onExpiry() string {
	switch {
	case n.AutoPause && n.ForgetMemory:
		return "stop"
	case n.AutoPause:
		return "pause"
	}
	return "delete"
}

// given reports whether JSON says something: null, {} and [] do not.
func given(value json.RawMessage) bool {
	switch string(value) {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// timeoutOf is a life in seconds, otherwise where none was given.
func timeoutOf(seconds *int64, otherwise time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return otherwise, nil
	case *seconds <= 0:
		return 0, refused(http.StatusBadRequest, "Timeout must be greater than 0")
	case *seconds > int64(maxTimeout/time.Second):
		return 0, refused(http.StatusBadRequest, "Timeout cannot be greater than %d seconds", int64(maxTimeout/time.Second))
	}
	return time.Duration(*seconds) * time.Second, nil
}
