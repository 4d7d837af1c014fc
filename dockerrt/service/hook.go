package service

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// hookTime bounds one hook, such as the loading of a database.
const hookTime = 10 * time.Minute

// runHooks runs the service's commands in the primary, one after the other, with the service's variables. One that ran
// before, in this life of the primary, is not run again.
func (ss *Services) runHooks(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error {
	for i, command := range service.PostStartOnPrimary {
		id, began := fmt.Sprintf("_hook-%s-%d", service.Name, i), time.Now()
		err := ss.runHook(ctx, sandboxID, service, id, command)
		oplog.Stepped(ctx, began, err, "done", "hook %d of service %s", i, service.Name)
		if err != nil {
			return err
		}
		oplog.Printf(ctx, "hook %d of service %s: its output: %s", i, service.Name, oplog.Redact(ctx, ss.layout.OutputTail(sandboxID, id, layout.Beginning{})))
	}
	return nil
}

func (ss *Services) runHook(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec, id, command string) error {
	guest, err := ss.links.Running(sandboxID)
	if err != nil {
		return err
	}
	stdout, stderr, err := ss.layout.OpenOutputs(sandboxID, id)
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()
	record, err := ss.layout.OpenRecord(sandboxID, id)
	if err != nil {
		return err
	}
	defer record.Close()
	result, err := guest.Exec(ctx, link.ExecSpec{
		ID: id, Argv: []string{"sh", "-c", command}, Env: engine.Environ(service.Envs),
		Timeout: hookTime, Grace: ss.grace, Files: [3]*os.File{stdout, stderr, record},
	})
	if err != nil {
		return err
	}
	guest.Ack(id)
	switch {
	case result.ErrorCode != "":
		return engine.Coded(codeServiceHook, "its hook %q could not be run: %s", command, result.ErrorMessage)
	case result.TimedOut:
		return engine.Coded(codeServiceHook, "its hook %q did not end within %s; its output: %s", command, hookTime, ss.layout.OutputTail(sandboxID, id, layout.Beginning{}))
	case result.ExitCode != 0:
		return engine.Coded(codeServiceHook, "its hook %q ended with exit code %d; its output: %s", command, result.ExitCode, ss.layout.OutputTail(sandboxID, id, layout.Beginning{}))
	}
	return nil
}
