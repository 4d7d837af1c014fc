package engine

import (
	"context"
	"io"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// Tail returns the end of what a container has written since then, "" for ever, as far as it can be had.
func (c *Client) Tail(ctx context.Context, containerID, since string) string {
	ctx, cancel := c.Read(ctx)
	defer cancel()
	body, err := c.ContainerLogs(ctx, containerID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20", Since: since})
	if err != nil {
		return "(no output)"
	}
	defer body.Close()
	var text strings.Builder
	if _, err := stdcopy.StdCopy(&text, &text, io.LimitReader(body, 64<<10)); err != nil || strings.TrimSpace(text.String()) == "" {
		return "(no output)"
	}
	return Quote(text.String())
}

// TailSize is how many bytes of output a person gets to see in an error message.
const TailSize = 2 << 10

// Quote is the end of a text that a program has written, for a person.
func Quote(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > TailSize {
		text = "…" + strings.ToValidUTF8(text[len(text)-TailSize:], "")
	}
	return text
}
