// Package persist is the memory of agboxd: which ids were ever used, what each sandbox and exec was asked
// to be, and the ordered event log of every sandbox. One bbolt file, one writer, any number of readers.
//
// The bucket tree, all at the top level; times are Unix nanoseconds:
//
//	sandbox-ids                  sandbox id -> int64, when it was reserved; never removed
//	exec-ids                     exec id    -> int64, when it was reserved; never removed
//	sandbox-config               sandbox id -> CreateSpec, as it was accepted
//	sandbox-deleted-at           sandbox id -> int64, when DELETED was recorded
//	sandbox-requests             sandbox id -> journal.IdempotencyKey, where the create carried one
//	sandbox-places               sandbox id -> text, the place made ahead that it took; gone once it is DELETED
//	places                       place -> sandbox id, the same the other way round
//	checkpoints                  sandbox id -> journal.State, what the log up to some sequence folds to
//	events:{sandbox id}          sequence   -> SandboxEvent; the oldest may have been trimmed
//	exec-config:{sandbox id}     exec id    -> CreateExecRequest, as it was accepted
//	exec-requests:{sandbox id}   exec id    -> journal.IdempotencyKey, where the exec carried one
//	exec-cancels:{sandbox id}    exec id    -> int64, when a cancel was accepted; gone once the exec ended
//	exec-ends                    exec id    -> journal.ExecEnd: where which log tells the end of the exec
//	trimmed-execs                sandbox id, "/", exec id -> nothing: execs of which only files may be left
//	snapshots                    snapshot id -> sandbox id, of snapshots that were announced and have not ended
//	begun                        fork id    -> int64, since when something of it may be there that is no sandbox yet
//	quarantine                   sandbox id -> int64, when something of it was found, and it was never accepted here
//	identity                     database, instance -> text; generation -> uint64; see Witness
//
// Keys are UTF-8 ids or big-endian uint64; values are big-endian 8-byte integers or protobuf messages.
// Events are stored without replay and snapshot, which belong to a subscription.
package persist

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"
)

var (
	sandboxIDs   = []byte("sandbox-ids")
	execIDs      = []byte("exec-ids")
	configs      = []byte("sandbox-config")
	deletedTimes = []byte("sandbox-deleted-at")
	marks        = []byte("sandbox-requests")
	takenPlaces  = []byte("sandbox-places")
	places       = []byte("places")
	checkpoints  = []byte("checkpoints")
	execEnds     = []byte("exec-ends")
	trimmedExecs = []byte("trimmed-execs")
	snapshots    = []byte("snapshots")
	begun        = []byte("begun")
	quarantine   = []byte("quarantine")
	identities   = []byte("identity")
)

func eventsOf(sandboxID string) []byte      { return []byte("events:" + sandboxID) }
func execConfigsOf(sandboxID string) []byte { return []byte("exec-config:" + sandboxID) }
func execMarksOf(sandboxID string) []byte   { return []byte("exec-requests:" + sandboxID) }
func execCancelsOf(sandboxID string) []byte { return []byte("exec-cancels:" + sandboxID) }

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{sandboxIDs, execIDs, configs, deletedTimes, marks, takenPlaces, places, checkpoints, execEnds,
		trimmedExecs, snapshots, begun, quarantine, identities} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

func encodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeUint(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func encodeTime(t time.Time) []byte { return encodeUint(uint64(t.UnixNano())) }
func decodeTime(b []byte) time.Time { return time.Unix(0, int64(decodeUint(b))) }
