package checker_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/agbox-dev/agbox/test/chaos/checker"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken  map[string]string
		shared bool
	}{
		"one each":            {map[string]string{"a": "warm.1", "b": "warm.2"}, false},
		"one for two of them": {map[string]string{"a": "warm.1", "b": "warm.1"}, true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "ids.db")
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			taken, _ := tx.CreateBucketIfNotExists([]byte("sandbox-places"))
			places, err := tx.CreateBucketIfNotExists([]byte("places"))
			for id, place := range c.taken {
				if err == nil {
					err = taken.Put([]byte(id), []byte(place))
				}
				if err == nil {
					err = places.Put([]byte(place), []byte(id))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		look := checker.New(checker.NewRecord(), nil, nil, dir)
		if err := look.Log(path); err != nil {
			t.Fatal(err)
		}
		if shared := len(look.Report().Violations()) > 0; shared != c.shared {
			t.Errorf("%s: %v", name, look.Report().Violations())
		}
	}
}
