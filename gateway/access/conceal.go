package access

import agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"

// conceal takes out of an answer what it tells of the daemon's host.
func (c *call) conceal(reply any) {
	if !c.id.May(GrantOperator) {
		concealLogs(reply)
	}
	if !c.id.May(GrantMounts) {
		concealSources(reply)
	}
}

func concealLogs(reply any) {
	var execs []*agboxv1.ExecStatus
	switch m := reply.(type) {
	case *agboxv1.CreateExecResponse:
		m.StdoutLogPath, m.StderrLogPath = "", ""
	case *agboxv1.AttachExecResponse:
		execs = []*agboxv1.ExecStatus{m.GetAttached(), m.GetEnded()}
	case *agboxv1.ListExecsResponse:
		execs = m.GetExecs()
	case *agboxv1.ListActiveExecsResponse:
		execs = m.GetExecs()
	case interface{ GetExec() *agboxv1.ExecStatus }:
		execs = []*agboxv1.ExecStatus{m.GetExec()}
	}
	for _, exec := range execs {
		if exec != nil {
			exec.StdoutLogPath, exec.StderrLogPath = "", ""
		}
	}
}

func concealSources(reply any) {
	var snapshots []*agboxv1.Snapshot
	switch m := reply.(type) {
	case *agboxv1.SandboxChangesResponse:
		if m.GetMount() != nil {
			m.Mount.Source = ""
		}
	case *agboxv1.ListSnapshotsResponse:
		snapshots = m.GetSnapshots()
	case interface{ GetSnapshot() *agboxv1.Snapshot }:
		snapshots = []*agboxv1.Snapshot{m.GetSnapshot()}
	}
	for _, snapshot := range snapshots {
		for _, mount := range snapshot.GetSpec().GetMounts() {
			mount.Source, mount.Accepted = "", nil
		}
		for _, copied := range snapshot.GetSpec().GetCopies() {
			copied.Source, copied.Accepted = "", nil
		}
	}
}
