package server

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/fleet"
)

// GetStats reads what the containers use now. A service that does not run is left out.
func (s *Server) GetStats(ctx context.Context, req *agboxv1.GetStatsRequest) (*agboxv1.GetStatsResponse, error) {
	view, err := s.system.Sandbox(req.SandboxId)
	if err != nil {
		return nil, err
	}
	var containers []*agboxv1.ContainerStats
	if view.State.Up() {
		if containers, err = s.runtime.Stats(ctx, req.SandboxId); err != nil {
			return nil, err
		}
	}
	if !fleet.PrimaryRuns(containers) { // it is not in such a state, or is about to leave it
		return nil, &lifecycle.Refusal{Kind: lifecycle.ErrNotReady, Message: fmt.Sprintf(
			"sandbox %s is %s and its primary does not run: there are stats only while it does", req.SandboxId, stateName(view.State.Phase))}
	}
	return &agboxv1.GetStatsResponse{Containers: containers}, nil
}

// byClass leaves out the classes of which there is nothing.
func byClass(work map[runtime.Class]int) map[string]uint32 {
	counts := map[string]uint32{}
	for class, n := range work {
		if n > 0 {
			counts[class.String()] = uint32(n)
		}
	}
	return counts
}

func (s *Server) Info(ctx context.Context, _ *agboxv1.InfoRequest) (*agboxv1.InfoResponse, error) {
	engine, err := s.runtime.Engine(ctx)
	if err != nil {
		return nil, err
	}
	response := &agboxv1.InfoResponse{
		Version:       s.config.Version,
		EngineVersion: engine.Version, EngineApiVersion: engine.APIVersion, EngineOs: engine.OS, StorageDriver: engine.StorageDriver,
		NetworkPool: engine.Pool, SubnetsUsed: engine.SubnetsUsed, SubnetsTotal: engine.SubnetsTotal,
		Sandboxes:     map[string]uint32{},
		NetworksReady: engine.NetworksReady, NetworksKept: engine.NetworksKept,
		EngineSlots: uint32(engine.Work.Slots), EngineRunning: byClass(engine.Work.Running), EngineWaiting: byClass(engine.Work.Waiting),
	}
	response.Isolated, response.IsolationProblem = s.runtime.Isolated()
	states, execs := s.system.Counts()
	for state, n := range states {
		response.Sandboxes[stateName(state)] = n
	}
	response.RunningExecs = execs
	response.Pool, response.PoolMisses = s.system.Pool()
	orphans, err := s.system.Orphans()
	if err != nil {
		return nil, err
	}
	for _, orphan := range orphans {
		response.Orphans = append(response.Orphans, &agboxv1.Orphan{
			SandboxId: orphan.SandboxID, FoundAt: timestamppb.New(orphan.FoundAt), RemovedAt: timestamppb.New(orphan.RemovedAt)})
	}
	return response, nil
}

func stateName(state lifecycle.Phase) string {
	return strings.TrimPrefix(state.String(), "SANDBOX_STATE_")
}
