package spec_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// fullSpec is valid and has one of everything that the refusals edit.
func fullSpec(m *machine) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image:            "debian:12",
		Mounts:           []*agboxv1.MountSpec{mount(m.path("proj"), "/work")},
		Copies:           []*agboxv1.CopySpec{{Source: m.path("proj"), Target: "/copy"}},
		RequiredServices: []*agboxv1.ServiceSpec{service("db", "CMD", "true")},
		OptionalServices: []*agboxv1.ServiceSpec{service("cache")},
	}
}

func TestAccepted(t *testing.T) {
	tests := []struct {
		name string
		edit func(m *machine, s *agboxv1.CreateSpec)
	}{
		{"one of everything", func(*machine, *agboxv1.CreateSpec) {}},
		{"image alone", func(_ *machine, s *agboxv1.CreateSpec) { proto.Reset(s); s.Image = "x" }},
		{"image by digest", func(_ *machine, s *agboxv1.CreateSpec) { s.Image = "h:5000/a/b@sha256:00" }},
		{"a file as source", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.path("proj/main.go") }},
		{"a copied file", func(m *machine, s *agboxv1.CreateSpec) { s.Copies[0].Source = m.path("proj/main.go") }},
		{"one source twice", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts = append(s.Mounts, mount(m.path("proj"), "/b")) }},
		{"a target within a target", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts = append(s.Mounts, mount(m.path("proj"), "/work/b"))
		}},
		{"a copy into a writable mount", func(_ *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Writable = true; s.Copies[0].Target = "/work/b" }},
		{"a sub-directory of home", func(m *machine, s *agboxv1.CreateSpec) { s.Mounts[0].Source = m.dir("home/src") }},
		{"a name that only begins like our data", func(m *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Source = m.dir("home/.local/share/agents-sandbox-2")
		}},
		{"targets that only begin like reserved ones", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Mounts[0].Target, s.Copies[0].Target = "/device", "/process"
		}},
		{"links inside a mount", func(m *machine, _ *agboxv1.CreateSpec) { m.link("proj/in", "main.go") }},
		{"a link out that is excluded", func(m *machine, s *agboxv1.CreateSpec) {
			m.link("proj/up", "..")
			s.Copies[0].ExcludePatterns = []string{"up"}
		}},
		{"our data, excluded from a copy", func(m *machine, s *agboxv1.CreateSpec) {
			m.dir("home/.local/share/agents-sandbox")
			s.Copies[0].Source, s.Copies[0].ExcludePatterns = m.path("home"), []string{".local"}
		}},
		{"every healthcheck form", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices = append(s.RequiredServices, service("sh", "CMD-SHELL", "true || false"))
			s.OptionalServices = append(s.OptionalServices, service("none", "NONE"))
		}},
		{"healthcheck times", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].Healthcheck = &agboxv1.HealthcheckConfig{
				Test: []string{"CMD", "true"}, Interval: durationpb.New(0), Timeout: durationpb.New(time.Millisecond),
				StartPeriod: durationpb.New(time.Hour), Retries: 1<<31 - 1,
			}
		}},
		{"service names", func(_ *machine, s *agboxv1.CreateSpec) {
			s.OptionalServices = append(s.OptionalServices, service("9.a_b-C"), service(strings.Repeat("a", 63)))
		}},
		{"post start", func(_ *machine, s *agboxv1.CreateSpec) {
			s.RequiredServices[0].PostStartOnPrimary = []string{"make seed"}
		}},
		{"odd but legal maps", func(_ *machine, s *agboxv1.CreateSpec) {
			s.Envs = map[string]string{"a.b-c": "", "HOST_UID": "7"}
			s.Labels = map[string]string{"a/b": ""}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			s := fullSpec(m)
			tt.edit(m, s)
			got, err := m.resolve(s)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.Spec, s) {
				t.Errorf("spec\n%v\nwant\n%v", got.Spec, s)
			}
		})
	}
}

func TestPathsAreCleaned(t *testing.T) {
	m := newMachine(t)
	s := fullSpec(m)
	s.Mounts[0] = &agboxv1.MountSpec{Source: m.root + "//proj/../proj/", Target: "/work//a/.", Writable: true}
	s.Copies[0].Source, s.Copies[0].Target = m.root+"/./proj", "/copy/"
	got, err := m.resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Mount{{Source: m.path("proj"), Target: "/work/a", Writable: true}}
	if !slices.Equal(got.Mounts, want) {
		t.Errorf("mounts %v, want %v", got.Mounts, want)
	}
	if x := got.Spec.Mounts[0]; x.Source != want[0].Source || x.Target != want[0].Target {
		t.Errorf("mount in spec %v, want %v", x, want[0])
	}
	if x := got.Spec.Copies[0]; x.Source != m.path("proj") || x.Target != "/copy" {
		t.Errorf("copy in spec %v", x)
	}
}

func TestIdleTTL(t *testing.T) {
	m := newMachine(t)
	for _, tt := range []struct {
		name string
		ttl  *durationpb.Duration
		want time.Duration
	}{
		{"unset is the default", nil, 30 * time.Minute},
		{"0 is never", durationpb.New(0), 0},
		{"set", durationpb.New(time.Second), time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := m.resolve(&agboxv1.CreateSpec{Image: "x", IdleTtl: tt.ttl})
			if err != nil {
				t.Fatal(err)
			}
			if got.IdleTTL != tt.want || (got.Spec.IdleTtl == nil) != (tt.ttl == nil) {
				t.Errorf("idle TTL %v (spec %v), want %v", got.IdleTTL, got.Spec.IdleTtl, tt.want)
			}
		})
	}
}
