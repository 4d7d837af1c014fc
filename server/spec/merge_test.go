package spec_test

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

var anySpec = rapid.Custom(func(t *rapid.T) *agboxv1.CreateSpec {
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	words := rapid.SliceOfN(word, 0, 2)
	services := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *agboxv1.ServiceSpec { return service(word.Draw(t, "service")) }), 0, 2)
	s := &agboxv1.CreateSpec{
		Image:            rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "image"),
		BuiltinTools:     words.Draw(t, "tools"),
		RequiredServices: services.Draw(t, "services"),
		Envs:             rapid.MapOfN(word, word, 0, 3).Draw(t, "envs"),
		Labels:           rapid.MapOfN(word, word, 0, 3).Draw(t, "labels"),
	}
	for _, target := range words.Draw(t, "mounts") {
		s.Mounts = append(s.Mounts, mount("/", target))
	}
	if rapid.Bool().Draw(t, "has ttl") {
		s.IdleTtl = &durationpb.Duration{Seconds: rapid.Int64Range(0, 2).Draw(t, "ttl")}
	}
	return s
})

func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, over := anySpec.Draw(t, "base"), anySpec.Draw(t, "over")
		wasBase, wasOver := proto.CloneOf(base), proto.CloneOf(over)
		got := spec.Merge(base, over)

		want := proto.CloneOf(base)
		if over.Image != "" {
			want.Image = over.Image
		}
		if over.IdleTtl != nil {
			want.IdleTtl = over.IdleTtl
		}
		if len(over.Mounts) > 0 {
			want.Mounts = over.Mounts
		}
		if len(over.BuiltinTools) > 0 {
			want.BuiltinTools = over.BuiltinTools
		}
		if len(over.RequiredServices) > 0 {
			want.RequiredServices = over.RequiredServices
		}
		want.Envs, want.Labels = merged(base.Envs, over.Envs), merged(base.Labels, over.Labels)
		if !proto.Equal(got, want) {
			t.Fatalf("got\n%v\nwant\n%v", got, want)
		}

		got.Envs = map[string]string{"changed": ""}
		for _, m := range got.Mounts {
			m.Source = "changed"
		}
		for _, s := range got.RequiredServices {
			s.Name = "changed"
		}
		if !proto.Equal(base, wasBase) || !proto.Equal(over, wasOver) {
			t.Fatal("an argument was changed, or shares memory with the result")
		}
		if !proto.Equal(spec.Merge(base, nil), base) || !proto.Equal(spec.Merge(nil, over), over) {
			t.Fatal("merging with nil changes a spec")
		}
	})
}

func merged(base, over map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}

func TestExplicitFieldsOverYAML(t *testing.T) {
	m := newMachine(t)
	got, err := spec.Resolve(&agboxv1.CreateSandboxRequest{
		ConfigYaml: []byte("image: from-yaml\nidle_ttl: 1h\nenvs: {A: yaml, B: yaml}\nbuiltin_tools: [git, uv]\n" +
			"optional_services: {z: {image: z}, a: {image: a}}\n"),
		CreateSpec: &agboxv1.CreateSpec{
			Image: "explicit", IdleTtl: durationpb.New(0), Envs: map[string]string{"B": "explicit", "C": ""}, BuiltinTools: []string{"npm"},
		},
	}, m.host())
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSpec{
		Image: "explicit", IdleTtl: durationpb.New(0), Envs: map[string]string{"A": "yaml", "B": "explicit", "C": ""}, BuiltinTools: []string{"npm"},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "z", Image: "z"}, {Name: "a", Image: "a"}},
	}
	if !proto.Equal(got.Spec, want) || got.IdleTTL != 0 {
		t.Errorf("got\n%v, idle %v\nwant\n%v", got.Spec, got.IdleTTL, want)
	}
}
