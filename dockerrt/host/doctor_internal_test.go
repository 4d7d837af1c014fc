package host

import (
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestEscapes(t *testing.T) {
	for _, tt := range []struct {
		component, version string
		level              agboxv1.FindingLevel
	}{
		{"runc", "1.1.5+ds1", warning}, {"runc", "1.1.12", warning}, {"runc", "1.2.8", fine}, {"runc", "1.3.2", warning}, {"runc", "1.3.3", fine},
		{"runc", "1.4.0", fine}, {"runc", "1.0.0-rc6", warning}, {"runc", "unknown", warning},
		{"containerd", "1.6.20~ds1", fine}, {"containerd", "v1.5.9", warning}, {"containerd", "1.4.12", warning}, {"containerd", "2.0.0", fine},
	} {
		found := escapes([]types.ComponentVersion{{Name: "Engine", Version: "1.0.0"}, {Name: tt.component, Version: tt.version}})
		if len(found) != 1 || found[0].Check != tt.component || found[0].Level != tt.level {
			t.Errorf("%s %s: %v", tt.component, tt.version, found)
		}
	}
}

func TestConfinement(t *testing.T) {
	levels := func(options ...string) map[string]agboxv1.FindingLevel {
		levels := map[string]agboxv1.FindingLevel{}
		for _, f := range confinement(system.Info{SecurityOptions: options, MemoryLimit: true, CPUCfsQuota: true}) {
			levels[f.Check] = f.Level
		}
		return levels
	}
	for _, tt := range []struct {
		options      []string
		seccomp, lsm agboxv1.FindingLevel
	}{
		{[]string{"name=seccomp,profile=default", "name=apparmor"}, fine, fine},
		{[]string{"name=seccomp,profile=builtin", "name=selinux"}, fine, fine},
		{[]string{"name=seccomp,profile=unconfined"}, problem, warning},
		{nil, problem, warning},
	} {
		if got := levels(tt.options...); got["seccomp"] != tt.seccomp || got["lsm"] != tt.lsm || got["limits"] != problem {
			t.Errorf("%v: %v", tt.options, got)
		}
	}
}

func TestReadOnlyFinding(t *testing.T) {
	if readOnlyFinding("1.41").Level != warning || readOnlyFinding("1.44").Level != fine || readOnlyFinding("1.50").Level != fine {
		t.Error("the API's version is misread")
	}
}
