package gate

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/access"
)

// TestPortURL: the address has the port, the sandbox, and a token that is the sandbox's own, the same each time.
func TestPortURL(t *testing.T) {
	t.Parallel()
	tokens, err := access.OpenTokens(filepath.Join(t.TempDir(), "gateway"))
	if err != nil {
		t.Fatal(err)
	}
	local := gateway.Config{Tokens: tokens}
	first, err := portURL(local, "web-1", "8080")
	if err != nil || !strings.HasPrefix(first, "http://8080-web-1.localhost:7439/?agbox-token=") {
		t.Errorf("%q, %v", first, err)
	}
	if again, err := portURL(local, "web-1", "8080"); again != first || err != nil {
		t.Errorf("then it is %q, %v", again, err)
	}
	far := gateway.Config{Tokens: tokens, Listen: "0.0.0.0:443", Domain: "box.example.com", TLS: gateway.TLS{SelfSigned: true}}
	other, err := portURL(far, "web-2", "80")
	if err != nil || !strings.HasPrefix(other, "https://80-web-2.box.example.com:443/?agbox-token=") || other[len(other)-64:] == first[len(first)-64:] {
		t.Errorf("%q, %v", other, err)
	}
	for _, wrong := range [][2]string{{"web-1", "0"}, {"web-1", "http"}, {"", "80"}, {"a/b", "80"}} {
		if address, err := portURL(local, wrong[0], wrong[1]); err == nil {
			t.Errorf("%q has an address: %s", wrong, address)
		}
	}
}
