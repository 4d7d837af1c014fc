package spec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// FuzzResolve checks what every accepted request must have, whatever the strings in it.
func FuzzResolve(f *testing.F) {
	f.Fuzz(func(t *testing.T, image, source, target, copySource, copyTarget, pattern, tool, name, key, yaml string) {
		m := newMachine(t)
		req := &agboxv1.CreateSandboxRequest{
			ConfigYaml: []byte(yaml),
			CreateSpec: &agboxv1.CreateSpec{
				Image: image, Mounts: []*agboxv1.MountSpec{mount(source, target), mount(m.root+source, "/2"+target)},
				// Copies are walked, so they stay on the test's own files.
				Copies:       []*agboxv1.CopySpec{{Source: m.path("proj") + copySource, Target: copyTarget, ExcludePatterns: []string{pattern}}},
				BuiltinTools: []string{tool}, OptionalServices: []*agboxv1.ServiceSpec{service(name, "CMD", name)},
				Envs: map[string]string{key: name}, Labels: map[string]string{name: key},
			},
		}
		if source == "" {
			req.CreateSpec.Mounts = req.CreateSpec.Mounts[1:]
		}
		got, err := spec.Resolve(req, m.host())
		if err != nil {
			return
		}
		seen := []string{}
		for _, x := range got.Mounts {
			seen = append(seen, x.Target)
		}
		for _, x := range got.Spec.Copies {
			seen = append(seen, x.Target)
		}
		slices.Sort(seen)
		if len(slices.Compact(seen)) != len(got.Mounts)+len(got.Spec.Copies) {
			t.Fatalf("a target is used twice: %q", seen)
		}
		again, err := spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: got.Spec}, m.host())
		if err != nil || !proto.Equal(again.Spec, got.Spec) || !slices.Equal(again.Mounts, got.Mounts) {
			t.Fatalf("what was accepted resolves differently: %v, error %v", again, err)
		}
	})
}

// FuzzResolveSpec resolves whole specs as they travel. A mount's source below /m is one below the test's own files.
func FuzzResolveSpec(f *testing.F) {
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := &agboxv1.CreateSpec{}
		if proto.Unmarshal(wire, in) != nil {
			return
		}
		m := newMachine(t)
		for _, x := range in.Mounts {
			if rest, ok := strings.CutPrefix(x.Source, "/m/"); ok {
				x.Source = m.path(rest)
			}
		}
		for _, x := range in.Copies { // walked
			x.Source = m.path("proj")
		}
		host := m.host()
		host.AllowedCapabilities = []string{"cap_sys_ptrace"}
		before := proto.CloneOf(in)
		got, err := spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: in}, host)
		if !proto.Equal(in, before) {
			t.Fatal("the request was changed")
		}
		if err != nil {
			var refused *spec.Error
			if !errors.As(err, &refused) || refused.Field == "" || refused.Reason == "" || len(refused.Message) > 10_000 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		again, err := spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: got.Spec}, host)
		if err != nil || !proto.Equal(again.Spec, got.Spec) {
			t.Fatalf("what was accepted\n%v\nresolves differently: %v, error %v", got.Spec, again, err)
		}
	})
}
