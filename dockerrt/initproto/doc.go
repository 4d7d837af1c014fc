// Package initproto is what agboxd and agbox-init (PID 1 of a sandbox) say to each other, and the
// result record that agbox-init leaves on disk. Both ends share this code, so it imports nothing
// that would cost PID 1 memory: no fmt, net, reflect, encoding, log.
//
// # Conversation
//
// The transport is a stream Unix socket that the daemon listens on and init connects to, again and
// again, for as long as it lives.
//
//	init                                 daemon
//	Hello{version, booted, execs}  ->          first frame of each connection
//	                               <-    Boot{} + stdout, stderr, record  once per life of init
//	Booted{status}                 ->
//	                               <-    Exec{id, argv, ...} + stdout, stderr, record
//	Started{id, pid}               ->
//	                               <-    Cancel{id, grace}
//	                               <-    Signal{token, id, signal}
//	Signalled{token, outcome}      ->
//	                               <-    Freeze{}
//	Frozen{}                       ->
//	                               <-    Thaw{}
//	Result{id, exit code, ...}     ->          again after each Hello, until
//	                               <-    Ack{id}
//	                               <-    Stop{grace}
//
// Exec is start-or-attach: an id that init knows is never started a second time. The main command,
// which Boot starts, is an exec as well, with the id CommandID; an Exec of that can only attach.
//
// Each Signal and each Freeze is answered on the connection that it came by, or never: an answer is
// not repeated. Hello tells whether the clocks stand still, so a daemon that comes back knows which
// of Freeze and Thaw is missing.
//
// # Frames
//
//	byte 0    0xA1: magic and version of the frame layout
//	byte 1    message type
//	byte 2    number of descriptors, sent with SCM_RIGHTS on the frame's first byte
//	byte 3    reserved, 0
//	byte 4-7  length of the body, little endian, at most MaxFrame
//	body      fields: uvarint(tag<<3 | kind), then a uvarint (kind 0) or uvarint length + bytes (kind 1)
//
// A field that is zero is left out, a repeated one appears several times, a nested message is a
// bytes field. Unknown tags are skipped and unknown types come out as Unknown, so either end may be
// newer than the other; a change that cannot be made by adding tags or types raises Version.
//
// # Room for more
//
// Standard input, a terminal and attaching to a running command need no new layout. Exec gets a
// repeated field that names the role of each descriptor (absent: stdout, stderr, record); "stdin"
// and "tty" are further roles, the window size a nested field. Window changes and closing stdin are
// new types that carry an id, as Cancel does; Attach carries an id and descriptors with roles, which
// the pump serves beside the log files.
package initproto
