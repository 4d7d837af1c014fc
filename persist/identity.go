package persist

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
)

// Keys of the bucket identity.
var (
	keyDatabase   = []byte("database")
	keyInstance   = []byte("instance")
	keyGeneration = []byte("generation")
)

// Mismatch is why Open refuses a database: it is not the one that its witness saw last. What it does not know was not
// necessarily never there.
type Mismatch struct {
	Path string
	// What says in what way, after the path.
	What string
	// Known are the ids of all sandboxes that the database ever accepted.
	Known map[string]bool
}

func (m *Mismatch) Error() string {
	return fmt.Sprintf("%v: %s %s", ErrMismatch, m.Path, m.What)
}

func (m *Mismatch) Unwrap() error { return ErrMismatch }

func readIdentity(tx *bbolt.Tx) Identity {
	bucket := tx.Bucket(identities)
	if bucket == nil {
		return Identity{}
	}
	return Identity{
		Database: string(bucket.Get(keyDatabase)), Instance: string(bucket.Get(keyInstance)),
		Generation: decodeUint(bucket.Get(keyGeneration)),
	}
}

func putGeneration(tx *bbolt.Tx, generation uint64) error {
	return tx.Bucket(identities).Put(keyGeneration, encodeUint(generation))
}

// knownSandboxes are all that were ever accepted.
func knownSandboxes(tx *bbolt.Tx) map[string]bool {
	known := map[string]bool{}
	if ids := tx.Bucket(sandboxIDs); ids != nil {
		_ = ids.ForEach(func(id, _ []byte) error { known[string(id)] = true; return nil })
	}
	return known
}

// identify gives the database its identity, and returns its generation, which is beyond all that it or the witness has had.
func identify(bolt *bbolt.DB, w *Witness) (uint64, error) {
	var identity Identity
	err := bolt.Update(func(tx *bbolt.Tx) error {
		identity = readIdentity(tx)
		if w.Instance == "" {
			w.Instance = identity.Instance
		}
		if w.Instance == "" {
			w.Instance = uuid.NewString()
		}
		if identity.Database == "" {
			identity.Database = uuid.NewString()
		}
		identity.Instance = w.Instance
		identity.Generation = max(identity.Generation, w.identity.Generation) + 1
		bucket := tx.Bucket(identities)
		return cmp.Or(bucket.Put(keyDatabase, []byte(identity.Database)), bucket.Put(keyInstance, []byte(identity.Instance)),
			putGeneration(tx, identity.Generation))
	})
	if err != nil {
		return 0, err
	}
	return identity.Generation, w.place(identity)
}

// advance takes the next generation, for a change that a copy must not be without. The witness hears of it once it is
// durable, by testify.
func (c *committer) advance(tx *bbolt.Tx) error {
	if c.witness == nil {
		return nil
	}
	c.generation = readIdentity(tx).Generation + 1
	return putGeneration(tx, c.generation)
}

// testify has the witness say what the database has reached.
func (c *committer) testify() error {
	if c.witness == nil || c.witness.identity.Generation == c.generation {
		return nil
	}
	return c.witness.record(c.generation)
}
