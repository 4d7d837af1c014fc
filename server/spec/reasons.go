package spec

// The reasons of refusals, in the order in which a request is checked. They are part of the API: a
// client may switch on them, so a name never changes its meaning.
const (
	// A sandbox or exec id of the wrong length or with characters that are not allowed.
	ReasonInvalidSandboxID = "INVALID_SANDBOX_ID"
	ReasonInvalidExecID    = "INVALID_EXEC_ID"

	// An exec without a command, a command without a program or that no kernel can start, as it is or with its
	// variables, a working directory with NUL or longer than a path can be, a user that is neither name nor number.
	ReasonCommandRequired = "COMMAND_REQUIRED"
	ReasonCommandInvalid  = "COMMAND_INVALID"
	ReasonTagTooLong      = "TAG_TOO_LONG"
	ReasonCwdInvalid      = "CWD_INVALID"
	ReasonUserInvalid     = "USER_INVALID"

	// A terminal without rows or columns, or with more than the kernel can tell.
	ReasonTerminalSize = "TERMINAL_SIZE_INVALID"

	// A document that is too large or too deep, is not YAML, holds a key that CreateSpec does not have,
	// the same key twice, or a value of the wrong type.
	ReasonYAMLTooLarge     = "CONFIG_YAML_TOO_LARGE"
	ReasonYAMLSyntax       = "CONFIG_YAML_SYNTAX"
	ReasonYAMLUnknownKey   = "CONFIG_YAML_UNKNOWN_KEY"
	ReasonYAMLDuplicateKey = "CONFIG_YAML_DUPLICATE_KEY"
	ReasonYAMLValue        = "CONFIG_YAML_VALUE_INVALID"

	// A spec that is too large as a whole.
	ReasonSpecTooLarge = "SPEC_TOO_LARGE"

	// No image, or one that cannot be an image reference.
	ReasonImageRequired = "IMAGE_REQUIRED"
	ReasonImageInvalid  = "IMAGE_INVALID"

	// A key or value that cannot be an environment variable, a label, or a selector, or is too large for one; too many labels.
	ReasonEnvInvalid       = "ENV_INVALID"
	ReasonLabelInvalid     = "LABEL_INVALID"
	ReasonSelectorRequired = "LABEL_SELECTOR_REQUIRED"

	// A duration below zero, below what the engine can measure, or not representable.
	ReasonDurationNegative = "DURATION_NEGATIVE"
	ReasonDurationTooShort = "DURATION_TOO_SHORT"
	ReasonDurationInvalid  = "DURATION_INVALID"

	// The source of a mount or a copy: a relative path, one that is or goes through a symbolic link,
	// is missing, cannot be looked at, is neither file nor directory, or would give the sandbox a hold
	// on its host (engine socket, kernel file systems, the daemon's own data).
	ReasonSourceNotAbsolute = "SOURCE_NOT_ABSOLUTE"
	ReasonSourceSymlink     = "SOURCE_SYMLINK"
	ReasonSourceNotFound    = "SOURCE_NOT_FOUND"
	ReasonSourceUnreadable  = "SOURCE_UNREADABLE"
	ReasonSourceKind        = "SOURCE_NOT_FILE_OR_DIRECTORY"
	ReasonSourceProtected   = "SOURCE_PROTECTED"
	// A source of a read-only mount in which something is mounted that the engine would leave writable.
	ReasonSourceSubmounts = "SOURCE_SUBMOUNTS_WRITABLE"

	// What a copy would meet inside its source: a link that leads out, an entry that is no file,
	// directory or link, too many entries. And an exclude pattern that is malformed.
	ReasonCopyLinkEscapes    = "COPY_LINK_ESCAPES"
	ReasonCopyEntryKind      = "COPY_ENTRY_KIND"
	ReasonCopyTooLarge       = "COPY_TOO_LARGE"
	ReasonExcludePattern     = "EXCLUDE_PATTERN_INVALID"
	ReasonCopyTargetReadOnly = "COPY_TARGET_READ_ONLY"

	// The target of a mount, a copy or a tool: a relative path, one with "..", one that the sandbox
	// needs for itself, one that is used twice.
	ReasonTargetNotAbsolute = "TARGET_NOT_ABSOLUTE"
	ReasonTargetTraversal   = "TARGET_TRAVERSAL"
	ReasonTargetReserved    = "TARGET_RESERVED"
	ReasonTargetRepeated    = "TARGET_REPEATED"

	// A copy whose target lies in a tmpfs, which is empty at each start.
	ReasonCopyTargetInTmpfs = "COPY_TARGET_IN_TMPFS"

	// A builtin tool that does not exist, is named twice, or whose files the host does not have.
	ReasonToolUnknown       = "BUILTIN_TOOL_UNKNOWN"
	ReasonToolRepeated      = "BUILTIN_TOOL_REPEATED"
	ReasonToolSourceMissing = "BUILTIN_TOOL_SOURCE_MISSING"

	// The primary's main process: a working directory that is relative, not plain or reserved, an
	// on_command_end that does not exist or has no command to wait for.
	ReasonWorkingDirInvalid   = "WORKING_DIR_INVALID"
	ReasonOnCommandEndInvalid = "ON_COMMAND_END_INVALID"

	// What is to happen to an idle or expired sandbox, and does not exist.
	ReasonOnIdleInvalid   = "ON_IDLE_INVALID"
	ReasonOnExpiryInvalid = "ON_EXPIRY_INVALID"
	// What a sandbox is to go on for, and does not exist.
	ReasonWakeInvalid = "WAKE_INVALID"

	// What is to happen when nobody holds the sandbox any more, or when it crashes, and does not exist or cannot be.
	ReasonLeaseInvalid         = "LEASE_INVALID"
	ReasonRestartPolicyInvalid = "RESTART_POLICY_INVALID"

	// A way to make the sandbox that does not exist.
	ReasonPoolInvalid = "POOL_INVALID"

	// A pull policy that does not exist.
	ReasonPullPolicyInvalid = "PULL_POLICY_INVALID"

	// A limit or size that is negative, below what the engine can enforce, or beyond what it can count.
	ReasonCPULimitInvalid    = "CPU_LIMIT_INVALID"
	ReasonMemoryLimitInvalid = "MEMORY_LIMIT_INVALID"
	ReasonPidsLimitInvalid   = "PIDS_LIMIT_INVALID"
	ReasonDiskLimitInvalid   = "DISK_LIMIT_INVALID"
	ReasonShmSizeInvalid     = "SHM_SIZE_INVALID"
	ReasonTmpfsSizeInvalid   = "TMPFS_SIZE_INVALID"
	ReasonGPUsInvalid        = "GPUS_INVALID"
	// A limit above what the operator of the daemon allows.
	ReasonLimitTooHigh = "LIMIT_TOO_HIGH"

	// A capability that Linux does not have, is named twice, or would let the sandbox out of its isolation.
	ReasonCapabilityUnknown  = "CAPABILITY_UNKNOWN"
	ReasonCapabilityRepeated = "CAPABILITY_REPEATED"
	ReasonCapabilityRefused  = "CAPABILITY_REFUSED"

	// What the sandbox may reach: a mode that does not exist, destinations that do not go with the mode
	// or are too many, an address range, port or protocol that is none.
	ReasonNetworkModeInvalid     = "NETWORK_MODE_INVALID"
	ReasonNetworkAllowInvalid    = "NETWORK_ALLOW_INVALID"
	ReasonNetworkCIDRInvalid     = "NETWORK_CIDR_INVALID"
	ReasonNetworkPortInvalid     = "NETWORK_PORT_INVALID"
	ReasonNetworkProtocolInvalid = "NETWORK_PROTOCOL_INVALID"

	// Published ports: a number that is no port, a host address or protocol that is none, the same place
	// on the host twice, more than can be served, and any at all without a network.
	ReasonPortInvalid         = "PORT_INVALID"
	ReasonPortHostIPInvalid   = "PORT_HOST_IP_INVALID"
	ReasonPortProtocolInvalid = "PORT_PROTOCOL_INVALID"
	ReasonPortRepeated        = "PORT_REPEATED"
	ReasonPortsTooMany        = "PORTS_TOO_MANY"
	ReasonPortsWithoutNetwork = "PORTS_WITHOUT_NETWORK"

	// Names: a host name that is none, an address that is none or would be the daemon's host.
	ReasonHostnameInvalid  = "HOSTNAME_INVALID"
	ReasonExtraHostInvalid = "EXTRA_HOST_INVALID"

	// A service without name or image, with a name that is taken or cannot be a host name, without the
	// healthcheck that it needs, or with one that cannot run.
	ReasonServiceNameRequired    = "SERVICE_NAME_REQUIRED"
	ReasonServiceNameInvalid     = "SERVICE_NAME_INVALID"
	ReasonServiceNameRepeated    = "SERVICE_NAME_REPEATED"
	ReasonServiceImageRequired   = "SERVICE_IMAGE_REQUIRED"
	ReasonHealthcheckRequired    = "HEALTHCHECK_REQUIRED"
	ReasonHealthcheckTestInvalid = "HEALTHCHECK_TEST_INVALID"
	ReasonRetriesTooLarge        = "HEALTHCHECK_RETRIES_TOO_LARGE"
	ReasonPostStartInvalid       = "POST_START_INVALID"
)
