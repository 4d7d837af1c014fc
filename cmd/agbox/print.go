package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/text"
)

// printJSON writes a message as one line, with the field names of the contract and zero values.
func (a *app) printJSON(message proto.Message) error {
	data, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil { // protojson varies its spaces on purpose
		return err
	}
	line.WriteByte('\n')
	_, err = a.out.Write(line.Bytes())
	return err
}

// What is printed repeats names, commands and errors of sandboxes. All of it but JSON and the output of commands goes through
// the following, and say, so that it can do nothing to a terminal.

// printTable writes rows with their columns aligned.
func (a *app) printTable(rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = text.Line(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// printAll writes messages: as JSON, one a line, or as rows of a table.
func printAll[M proto.Message](a *app, list []M, head []string, row func(M) []string) error {
	rows := [][]string{head}
	for _, message := range list {
		if !a.json {
			rows = append(rows, row(message))
		} else if err := a.printJSON(message); err != nil {
			return err
		}
	}
	if a.json {
		return nil
	}
	return a.printTable(rows)
}

// errStreamEnded: there is no more, and there would be if agboxd had not ended.
var errStreamEnded = errors.New("agboxd ended the stream: watch again when it is back")

// printStream writes each message that comes, as JSON or by print, and returns ended at the stream's end.
func printStream[T any, M interface {
	*T
	proto.Message
}](a *app, stream *raw.Receiver[T], err, ended error, print func(M) error) error {
	if err != nil {
		return err
	}
	defer stream.Close()
	if a.json {
		print = func(message M) error { return a.printJSON(message) }
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ended
		}
		if err == nil {
			err = print(message)
		}
		if err != nil {
			return err
		}
	}
}

// printLine writes one line.
func (a *app) printLine(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, text.Line(fmt.Sprintf(format, args...)))
	return err
}

// lines writes text of many lines, which comes in pieces.
type lines struct {
	to   io.Writer
	rest []byte // the beginning of a character
}

func (l *lines) Write(p []byte) (int, error) {
	whole := append(l.rest, p...)
	end := len(whole)
	for i := 1; i < utf8.UTFMax && i <= len(whole); i++ {
		if last := whole[len(whole)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= i
			}
			break
		}
	}
	l.rest = slices.Clone(whole[end:])
	if _, err := io.WriteString(l.to, text.Lines(string(whole[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}

func timeText(t time.Time) string {
	return t.Local().Format(time.DateTime)
}
