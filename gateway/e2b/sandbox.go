package e2b

import (
	"encoding/json"
	"math"
	"net/http"
	"runtime"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// clientID means nothing, and every answer has to have one.
const clientID = "6532622b"

// sandboxAnswer is what whoever made or connected to a sandbox gets.
type sandboxAnswer struct {
	TemplateID  string `json:"templateID"`
	SandboxID   string `json:"sandboxID"`
	ClientID    string `json:"clientID"`
	EnvdVersion string `json:"envdVersion"`
	Alias       string `json:"alias,omitempty"`
	AccessToken string `json:"envdAccessToken,omitempty"`
	// TrafficToken is there where not everybody may use the sandbox's ports.
	TrafficToken string `json:"trafficAccessToken,omitempty"`
	Domain       string `json:"domain,omitempty"`
}

// listed is a sandbox in a list; with detail what it is asked for by its id.
type listed struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	Alias       string            `json:"alias,omitempty"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	State       string            `json:"state"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

type detail struct {
	listed
	AccessToken    string          `json:"envdAccessToken,omitempty"`
	Domain         string          `json:"domain,omitempty"`
	InternetAccess *bool           `json:"allowInternetAccess,omitempty"`
	Network        json.RawMessage `json:"network,omitempty"`
	Lifecycle      lifecycle       `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// box is a sandbox of this wire.
type box struct {
	sdk.Sandbox
	note
	state string
}

func boxOf(s sdk.Sandbox) (box, bool) {
	n, found := noteOf(s.Labels)
	state := stateOf(s.State)
	return box{s, n, state}, found && state != ""
}

// box returns the sandbox that the path names. Who made none over this wire, or has none, hears 404.
func (c *call) box() (box, error) {
	id := c.PathValue("id")
	s, err := c.client.GetSandbox(c.Context(), id)
	if err != nil {
		if problemOf(err).Code == http.StatusBadRequest {
			return box{}, notFound(id)
		}
		return box{}, err
	}
	b, found := boxOf(s)
	if !found {
		return box{}, notFound(id)
	}
	return b, nil
}

// settled is box once no operation is in progress.
func (c *call) settled() (box, error) {
	b, err := c.box()
	if err != nil {
		return box{}, err
	}
	s, _, err := c.client.WaitSandbox(c.Context(), b.ID, 0)
	if err != nil {
		return box{}, err
	}
	if b, found := boxOf(s); found {
		return b, nil
	}
	return box{}, notFound(b.ID)
}

func (c *call) answer(b box) sandboxAnswer {
	a := sandboxAnswer{
		TemplateID: b.Template, SandboxID: b.ID, ClientID: clientID, EnvdVersion: EnvdVersion, Alias: b.Alias,
		AccessToken: c.config.Token(b.ID), Domain: c.config.Domain,
	}
	if public, _ := Traffic(b.Labels); !public {
		a.TrafficToken = c.config.PortsToken(b.ID)
	}
	return a
}

func (b box) listed() listed {
	l := listed{
		TemplateID: b.Template, SandboxID: b.ID, ClientID: clientID, EnvdVersion: EnvdVersion, Alias: b.Alias,
		StartedAt: b.CreatedAt, EndAt: b.endAt(), State: b.state, Metadata: b.note.metadata(b.Labels),
		CPUCount: int(math.Ceil(b.CPUs)), MemoryMB: int(b.note.MemoryBytes >> 20),
	}
	if l.CPUCount == 0 {
		l.CPUCount = runtime.NumCPU()
	}
	if l.MemoryMB == 0 {
		l.MemoryMB = hostMemoryMB()
	}
	return l
}

// endAt is when its life ends; of a paused one, when it was paused, and of one that has no end, far away.
func (b box) endAt() time.Time {
	switch {
	case b.state == paused:
		return b.StateChangedAt
	case b.ExpiresAt.IsZero():
		return b.CreatedAt.Add(100 * 365 * 24 * time.Hour)
	}
	return b.ExpiresAt
}

func (c *call) info() (int, any, error) {
	b, err := c.box()
	if err != nil {
		return 0, nil, err
	}
	d := detail{
		listed: b.listed(), AccessToken: c.config.Token(b.ID), Domain: c.config.Domain,
		InternetAccess: b.InternetAccess, Network: b.note.Network,
		Lifecycle: lifecycle{OnTimeout: "kill", AutoResume: b.AutoResume},
	}
	if b.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	return http.StatusOK, d, nil
}
