package access

import (
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func protoKey(key string) protoreflect.MapKey    { return protoreflect.ValueOfString(key).MapKey() }
func protoValue(value string) protoreflect.Value { return protoreflect.ValueOfString(value) }

// askedAtOnce is how many sandboxes are asked at once for their execs.
const askedAtOnce = 8

func aboutSandboxOrAll(c *call, message proto.Message) error {
	if message.(interface{ GetSandboxId() string }).GetSandboxId() == "" {
		return nil // listed for each sandbox of the identity's
	}
	return aboutSandbox(c, message)
}

// listExecs asks for the execs of each sandbox of a bounded identity's, where the daemon would tell those of all.
func listExecs(c *call, request, reply proto.Message) (bool, error) {
	of := request.(*agboxv1.ListExecsRequest)
	if of.SandboxId != "" || !c.id.bounded() {
		return false, nil
	}
	execs, err := c.eachSandbox(func(client agboxv1.SandboxServiceClient, id string) ([]*agboxv1.ExecStatus, error) {
		one := proto.CloneOf(of)
		one.SandboxId = id
		response, err := client.ListExecs(c.outgoing(), one)
		return response.GetExecs(), err
	})
	slices.SortStableFunc(execs, func(a, b *agboxv1.ExecStatus) int {
		return b.GetStartedAt().AsTime().Compare(a.GetStartedAt().AsTime())
	})
	limit := int(of.Limit)
	if limit == 0 {
		limit = 1000 // as the contract has it
	}
	reply.(*agboxv1.ListExecsResponse).Execs = execs[:min(len(execs), limit)]
	c.conceal(reply)
	return true, err
}

func listActiveExecs(c *call, request, reply proto.Message) (bool, error) {
	of := request.(*agboxv1.ListActiveExecsRequest)
	if of.GetSandboxId() != "" || !c.id.bounded() {
		return false, nil
	}
	execs, err := c.eachSandbox(func(client agboxv1.SandboxServiceClient, id string) ([]*agboxv1.ExecStatus, error) {
		response, err := client.ListActiveExecs(c.outgoing(), &agboxv1.ListActiveExecsRequest{SandboxId: &id})
		return response.GetExecs(), err
	})
	reply.(*agboxv1.ListActiveExecsResponse).Execs = execs
	c.conceal(reply)
	return true, err
}

func (c *call) eachSandbox(ask func(agboxv1.SandboxServiceClient, string) ([]*agboxv1.ExecStatus, error)) ([]*agboxv1.ExecStatus, error) {
	client, ids := agboxv1.NewSandboxServiceClient(c.daemon), []string{c.id.Sandbox}
	if c.id.Sandbox == "" {
		boxes, err := client.ListSandboxes(c.outgoing(), &agboxv1.ListSandboxesRequest{LabelSelector: c.id.Labels})
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, box := range boxes.GetSandboxes() {
			ids = append(ids, box.GetSandboxId())
		}
	}
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	found := make([][]*agboxv1.ExecStatus, len(ids))
	for i, id := range ids {
		group.Go(func() (err error) {
			found[i], err = ask(client, id)
			if status.Code(err) == codes.NotFound { // it went meanwhile
				err = nil
			}
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err
}
