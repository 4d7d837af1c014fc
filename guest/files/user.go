package files

// Look is how files are looked at.
type Look struct {
	// User is whose rights count, as an exec's; nil: all is seen.
	User *string
	// Attributes are told of as well.
	Attributes bool
	// Depth is how many directories deep a recursive list goes; 0: all.
	Depth uint32
}

// Get is one file to be read by a user of the sandbox. Here and below a path that is not absolute begins at that user's home, and User is as
// an exec's.
type Get struct {
	User, Path     string
	Offset, Length uint64 // Length 0: to the end
}

// Put is one file to be written.
type Put struct {
	User, Path string
	// Mode, unless nil, are its permissions; else those of the file that is there, 0644 of a new one.
	Mode *uint32
	// InPlace writes into what is there; else that is replaced by what is whole.
	InPlace, Parents bool
	// Attributes are set, and first, with InPlace, those whose names begin with RemoveAttributes removed, unless that is "".
	Attributes       map[string]string
	RemoveAttributes string
}

// Move is one rename.
type Move struct {
	User, Source, Destination string
	Parents, KeepExisting     bool
}

// NewFile and NewDirectory are permissions that nobody has asked for otherwise.
const (
	NewFile      = 0o644
	NewDirectory = 0o755
)
