package server

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/persist"
)

// TestPartialFailure: the one that could not be asked is the error, the others were asked, and the refusal says which.
func TestPartialFailure(t *testing.T) {
	t.Parallel()
	s := &Server{log: slog.New(slog.DiscardHandler)}
	for _, n := range []int{3, 300} {
		var ids, want []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("sandbox-%03d", i))
		}
		accepts := func(id string) bool { return id != ids[1] && !strings.HasSuffix(id, "7") }
		for _, id := range ids {
			if accepts(id) {
				want = append(want, id)
			}
		}
		_, _, err := s.each(ids, func(id string) (uint64, error) {
			if id == ids[1] {
				return 0, fmt.Errorf("%w: disk", persist.ErrNoSpace)
			}
			if !accepts(id) {
				return 0, nil
			}
			return 1, nil
		})
		st := status.Convert(s.answer(err, map[string]string{}))
		info := st.Details()[0].(*errdetails.ErrorInfo)
		if st.Code() != codes.ResourceExhausted || info.Reason != reasonDiskFull || info.Metadata["sandbox_id"] != ids[1] ||
			info.Metadata["accepted_count"] != strconv.Itoa(len(want)) || proto.Size(st.Proto()) > maxStatus {
			t.Errorf("of %d: %v, %v, %d bytes", n, st, info, proto.Size(st.Proto()))
		}
		told := strings.Split(info.Metadata["accepted_sandbox_ids"], ",")
		if strings.Join(told, " ") != strings.Join(want[:len(told)], " ") || n == 3 && len(told) != len(want) || len(told) < 2 {
			t.Errorf("of %d it tells %q", n, told)
		}
	}
}
