package spec

import (
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Accepted is the spec as it is kept: what the builtin tools stand for on this host included, so that it means
// the same at any later time.
func (r *Resolved) Accepted() *agboxv1.CreateSpec {
	final := r.Spec
	final.Mounts = nil
	for _, m := range r.Mounts {
		file := r.Sources[m.Source]
		kept := &agboxv1.MountSpec{Source: m.Source, Target: m.Target, Writable: m.Writable, Accepted: file.Message()}
		if m.CopyOnWrite {
			kept.Mode, kept.Accepted = ModeCopyOnWrite, file.Copied().Message()
		}
		final.Mounts = append(final.Mounts, kept)
	}
	for _, c := range final.Copies {
		c.Accepted = r.Sources[c.Source].Copied().Message()
	}
	for key, value := range r.Envs {
		if final.Envs == nil {
			final.Envs = map[string]string{}
		}
		final.Envs[key] = value
	}
	return final
}
