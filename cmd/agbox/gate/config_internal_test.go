package gate

import (
	"strings"
	"testing"
)

// TestTemplates: the table of aliases is read, and what names no image is refused.
func TestTemplates(t *testing.T) {
	t.Parallel()
	own, err := read([]byte("[runtime]\nidle_ttl = \"1h\"\n[gateway.e2b.templates]\nbase = \"debian:12\"\n\"my-node\" = \"node:22\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	templates, err := own.templates()
	if err != nil || len(templates) != 2 || templates["base"].Image != "debian:12" || templates["my-node"].Image != "node:22" {
		t.Errorf("the templates are %v, %v", templates, err)
	}
	if own, err = read([]byte("[gateway.e2b.templates]\nbase = \"\"\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := own.templates(); err == nil || !strings.Contains(err.Error(), `base = "image:tag"`) {
		t.Errorf("a template without an image: %v", err)
	}
	if _, err := read([]byte("[gateway.e2b]\ntemplate = \"x\"\n")); err == nil || !strings.Contains(err.Error(), "template") {
		t.Errorf("an unknown key: %v", err)
	}
}
