// Package protocol is what agboxd and agbox-init (PID 1 of a sandbox) say to each other, and the
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
//	                               <-    Boot{as} + stdout, stderr, record  once per life of init
//	Booted{status}                 ->
//	                               <-    Exec{id, argv, roles, ...} + descriptors
//	Started{id, pid}               ->
//	                               <-    Cancel{id, grace}
//	                               <-    Signal{token, id, signal}
//	Signalled{token, outcome}      ->
//	                               <-    Resize{token, id, size}
//	Signalled{token, outcome}      ->
//	                               <-    CloseStdin{id}
//	                               <-    Dial{token, port}
//	Dialed{token} + connection     ->
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
// Each Signal, each Resize, each Dial and each Freeze is answered on the connection that it came by, or never: an answer is
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
// # Input and terminals
//
// Standard input is a FIFO on the host that the daemon makes. Exec brings both ends of it: the read end becomes the
// command's, the write end is kept by init so that the input goes on when the daemon dies or a client leaves. Clients
// write by way of the daemon, which opens the FIFO by its path. CloseStdin, said again after each reconnect as Cancel is, takes
// init's end away. With a terminal, init makes the pseudo terminal inside the sandbox, and the pump types what comes out of the
// FIFO and carries what the terminal shows into the stdout file.
//
// # Index
//
// Exec brings a file for the index of the output, which tells its order. Init writes to it what the pump sees, at most 10 ms after the output itself, and all before the Result.
//
// # Room for more
//
// A further descriptor of Exec is a role of its own.
package protocol
