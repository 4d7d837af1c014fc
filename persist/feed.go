package persist

// feedSize is how many changes are remembered: as many commits as 1,000 busy sandboxes make while a reader that keeps
// up sends what it has read. One that is further behind looks at every sandbox once.
const feedSize = 4096

// Changes says in which sandboxes something was recorded after a version.
type Changes struct {
	// Version is what these changes reach up to; the next ones are those after it.
	Version uint64
	// Changed names each sandbox once, oldest change first. With Overflow it is empty: then any may have changed.
	Changed  []string
	Overflow bool
	// Created are the sandboxes that were created after the version given, with Overflow too, but for purged ones.
	Created []string
	// Next is closed at the first change after Version, and at the closing of the database.
	Next <-chan struct{}
}

// Version returns the version of the newest change. What was recorded up to it is there for any reader that asks from
// now on. Versions start again with each Open.
func (db *DB) Version() uint64 {
	db.changes.mu.Lock()
	defer db.changes.mu.Unlock()
	return db.changes.feed.version
}

// ChangesAfter returns what has changed since version, one that Version or an earlier ChangesAfter returned. It costs
// the database nothing: a reader that follows all sandboxes is a version, and a slow one an old version.
func (db *DB) ChangesAfter(version uint64) Changes {
	found, recent := db.changes.after(version)
	seen := make(map[string]bool, len(recent))
	for _, change := range recent {
		if change.created {
			found.Created = append(found.Created, change.sandboxID)
		}
		if !seen[change.sandboxID] {
			seen[change.sandboxID] = true
			found.Changed = append(found.Changed, change.sandboxID)
		}
	}
	return found
}

// feed numbers the changes of all sandboxes, and keeps the newest. Its owner's lock guards it.
type feed struct {
	version uint64
	recent  [feedSize]change // change v is at v%feedSize
	created map[string]uint64
	next    chan struct{}
}

type change struct {
	sandboxID string
	created   bool
}

func (f *feed) add(c change) {
	f.version++
	f.recent[f.version%feedSize] = c
	if c.created {
		f.created[c.sandboxID] = f.version
	}
	if f.next != nil {
		close(f.next)
		f.next = nil
	}
}

func (c *changes) after(version uint64) (found Changes, recent []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.feed
	if f.next == nil {
		f.next = make(chan struct{})
	}
	found = Changes{Version: f.version, Next: f.next, Overflow: f.version-version > feedSize}
	if c.closed {
		close(f.next)
		f.next = nil
	}
	if found.Overflow {
		for id, at := range f.created {
			if at > version {
				found.Created = append(found.Created, id)
			}
		}
		return found, nil
	}
	for v := version + 1; v <= f.version; v++ {
		recent = append(recent, f.recent[v%feedSize])
	}
	return found, recent
}

func (c *changes) forget(sandboxID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.feed.created, sandboxID)
}
