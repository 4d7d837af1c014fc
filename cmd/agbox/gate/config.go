package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/gateway/e2b"
	"github.com/pelletier/go-toml/v2"
)

// section is [gateway] of agboxd's configuration file; docs/gateway.md describes each key.
type section struct {
	Listen        string   `toml:"listen"`
	Domain        string   `toml:"domain"`
	TLSCert       string   `toml:"tls_cert"`
	TLSKey        string   `toml:"tls_key"`
	TLSSelfSigned bool     `toml:"tls_self_signed"`
	TLSNames      []string `toml:"tls_names"`
	E2B           struct {
		// Templates are images by the aliases that E2B's clients know them by.
		Templates map[string]string `toml:"templates"`
	} `toml:"e2b"`
}

// templates are those of the section, each of which has to name an image.
func (s section) templates() (map[string]e2b.Template, error) {
	templates := map[string]e2b.Template{}
	for alias, image := range s.E2B.Templates {
		if alias == "" || image == "" {
			return nil, fmt.Errorf("gateway.e2b.templates: %q is %q: write base = \"image:tag\"", alias, image)
		}
		templates[alias] = e2b.Template{Image: image}
	}
	return templates, nil
}

// load reads the section; a file that is missing, or has none, is no error, a key that is not known is.
func load() (gateway.Config, error) {
	dir, err := xdg("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return gateway.Config{}, err
	}
	path := filepath.Join(dir, "agents-sandbox", "config.toml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return gateway.Config{}, nil
	} else if err != nil {
		return gateway.Config{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	own, err := read(text)
	if err != nil {
		return gateway.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	templates, err := own.templates()
	if err != nil {
		return gateway.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return gateway.Config{Listen: own.Listen, Domain: own.Domain, Templates: templates, TLS: gateway.TLS{
		CertFile: own.TLSCert, KeyFile: own.TLSKey, SelfSigned: own.TLSSelfSigned, Names: own.TLSNames}}, nil
}

func read(text []byte) (section, error) {
	var whole struct {
		Gateway map[string]any `toml:"gateway"`
	}
	if err := toml.Unmarshal(text, &whole); err != nil {
		return section{}, err
	}
	alone, err := toml.Marshal(whole.Gateway)
	if err != nil {
		return section{}, err
	}
	var own section
	err = toml.NewDecoder(bytes.NewReader(alone)).DisallowUnknownFields().Decode(&own)
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		return section{}, fmt.Errorf("unknown key %s: see docs/gateway.md for those there are", dotted(strict.Errors[0].Key()))
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		return section{}, fmt.Errorf("%s: %s", dotted(decode.Key()), strings.TrimPrefix(decode.Error(), "toml: "))
	}
	return own, err
}

func dotted(key toml.Key) string { return "gateway." + strings.Join(key, ".") }
