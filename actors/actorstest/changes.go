package actorstest

import (
	"context"
	"io"

	"github.com/agbox-dev/agbox/hosttree/layer"
)

// Changes fails with layer.ErrPrivilege, as a runtime does that may not read what sandboxes wrote.
func (r *Runtime) Changes(context.Context, string, int, string, func(*layer.Change) error) error {
	return layer.ErrPrivilege
}

// ChangesTar fails with layer.ErrUnstable, as one does that reads what is being written.
func (r *Runtime) ChangesTar(context.Context, string, int, string, io.Writer) error {
	return layer.ErrUnstable
}
