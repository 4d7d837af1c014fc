package persist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"
)

// Witness is the file beside a database that holds the id of the data directory's instance, and on a second line which
// database that had last and what generation it had reached:
//
//	0b7c4b0e-5a54-4c5a-8f0e-3a3b8c8a0a4e
//	database 6f1c0f4e-… generation 00000000000000000042
//
// A database takes a new generation when it is opened, with each sandbox that it accepts, and when it is closed; only then
// does the file say so, and only then does anybody act on it. So a database that is behind its witness is an older copy,
// and one that is not has every sandbox that was ever accepted. The file says nothing that the database does not have.
type Witness struct {
	// Instance is the data directory's own id, for ever: what it owns in Docker carries it.
	Instance string
	path     string
	identity Identity
	// file is open from the first record on, and written in place: its size and place never change.
	file *os.File
}

// Identity tells databases, and copies of one database, from each other.
type Identity struct {
	// Database is made up when a database is; "" is one that was never opened with a witness.
	Database string
	// Instance is that of the witness that the database was opened with last.
	Instance   string
	Generation uint64
}

const witnessLine = "database %s generation %020d\n"

// ReadWitness returns the witness at path, and one with an Instance of "" when there is no such file: then the database
// tells which instance it belongs to, or a new one is made up. It fails with ErrWitness when the file holds something else.
func ReadWitness(path string) (*Witness, error) {
	w := &Witness{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	} else if err != nil {
		return nil, fmt.Errorf("persist: cannot read %s: %w", path, err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	id, err := uuid.Parse(strings.TrimSpace(first))
	if err != nil {
		return nil, damagedWitness(path, "its first line is no instance id")
	}
	w.Instance = id.String()
	if rest == "" {
		return w, nil
	}
	if _, err := fmt.Sscanf(rest, witnessLine, &w.identity.Database, &w.identity.Generation); err != nil {
		return nil, damagedWitness(path, "its second line is not of a database and a generation")
	}
	return w, nil
}

func damagedWitness(path, what string) error {
	return fmt.Errorf("%w: %s: %s: restore it; the label io.github.1996fanrui.agents-sandbox.instance of a sandbox's container has "+
		"the id that the first line has to hold, and the second line may be left out", ErrWitness, path, what)
}

// compare says in what way a database is not the one that the witness saw last, "" when it is.
func (w *Witness) compare(found Identity) string {
	switch {
	case w.Instance != "" && found.Instance != "" && found.Instance != w.Instance:
		return "belongs to instance " + found.Instance + ", and this data directory is of instance " + w.Instance
	case w.identity.Database == "":
		return "" // nothing is known of what there was
	case found.Database == "":
		return "is new, or a copy from before it was told apart from others"
	case found.Database != w.identity.Database:
		return "is another one"
	case found.Generation < w.identity.Generation:
		return fmt.Sprintf("is an older copy, of generation %d, and what is missing came after that, up to generation %d",
			found.Generation, w.identity.Generation)
	}
	return ""
}

// place writes the whole file and keeps it open for record.
func (w *Witness) place(identity Identity) error {
	err := errors.Join(Sweep(w.path), PlaceFile(w.path, 0o600, func(to io.Writer) error {
		_, err := fmt.Fprintf(to, "%s\n"+witnessLine, w.Instance, identity.Database, identity.Generation)
		return err
	}))
	if err != nil {
		return fmt.Errorf("persist: cannot write %s: %w", w.path, err)
	}
	file, err := os.OpenFile(w.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if w.file != nil {
		err = w.file.Close()
	}
	w.file, w.identity = file, identity
	return err
}

// record returns once the new generation is on disk. It writes fewer bytes than a disk takes at once.
func (w *Witness) record(generation uint64) error {
	text := fmt.Sprintf(witnessLine, w.identity.Database, generation)
	if _, err := w.file.WriteAt([]byte(text), int64(len(w.Instance)+1)); err != nil {
		return fmt.Errorf("persist: cannot write %s: %w", w.path, err)
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("persist: cannot write %s: %w", w.path, err)
	}
	w.identity.Generation = generation
	return nil
}

func (w *Witness) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}
