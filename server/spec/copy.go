package spec

import (
	"context"
	"errors"

	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/hosttree"
	"github.com/agbox-dev/agbox/paths"
)

func (r *resolver) copies() error {
	for i, c := range r.out.Spec.Copies {
		field := element("create_spec.copies", i)
		source, err := r.copySource(field+".source", c.GetSource())
		if err != nil {
			return err
		}
		target, err := r.targets.claim(field+".target", c.GetTarget())
		if err == nil {
			err = ValidateUser(field+".owner", c.GetOwner())
		}
		if err != nil {
			return err
		}
		if c.KeepOwner && c.Owner != "" {
			return refuse(ReasonUserInvalid, field+".owner", "%s is to own it, and keep_owner keeps the host's; leave one out", quote(c.Owner))
		}
		if r.out.Spec.ReadOnlyRoot {
			return refuse(ReasonCopyTargetReadOnly, field+".target",
				"%s cannot be copied to: read_only_root is set, and the engine copies into the root only; mount the source instead", quote(target))
		}
		for _, m := range r.out.Mounts {
			if !m.Writable && !m.CopyOnWrite && paths.Within(target, m.Target) {
				return refuse(ReasonCopyTargetReadOnly, field+".target", "%s lies in the read-only mount %s; make the mount writable or copy elsewhere", quote(target), quote(m.Target))
			}
		}
		if err := r.identify(field+".source", source); err != nil {
			return err
		}
		if err := hosttree.Check(context.Background(), source, c.ExcludePatterns, r.guard.Entry); err != nil {
			return refusedCopy(field, err)
		}
		c.Source, c.Target, c.Accepted = source, target, nil
	}
	return nil
}

// copyReasons are the reasons of what hosttree refuses.
var copyReasons = map[error]string{
	hosttree.ErrPattern:       ReasonExcludePattern,
	hosttree.ErrSourceSymlink: ReasonSourceSymlink,
	hosttree.ErrUnreadable:    ReasonSourceUnreadable,
	hosttree.ErrEntryKind:     ReasonCopyEntryKind,
	hosttree.ErrLinkEscapes:   ReasonCopyLinkEscapes,
	hosttree.ErrTooLarge:      ReasonCopyTooLarge,
}

// refusedCopy is the refusal of the copy at field that err, of hosttree.Check or of the guard that went along, means.
func refusedCopy(field string, err error) error {
	if place, ok := errors.AsType[*hostpath.Protected](err); ok {
		return refuse(ReasonSourceProtected, field+".source", "%s is %s, which no sandbox may have; exclude it", quote(place.Path), place.What)
	}
	refused, ok := errors.AsType[*hosttree.Error](err)
	if !ok {
		return err
	}
	if refused.Kind == hosttree.ErrPattern {
		field = element(field+".exclude_patterns", refused.Pattern)
	} else {
		field += ".source"
	}
	return refuse(copyReasons[refused.Kind], field, "%s", refused.Message)
}
