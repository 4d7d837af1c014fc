package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLS is how the gateway shows who it is. The zero value is cleartext, which is for loopback alone.
type TLS struct {
	// CertFile and KeyFile are PEM files; both or none.
	CertFile, KeyFile string
	// SelfSigned has the gateway make a certificate of its own in Dir, and use it again at the next start.
	SelfSigned bool
	Dir        string
	// Names are the names and addresses that a certificate is made for, beside those of this machine.
	Names []string
}

// Enabled reports whether there is TLS at all.
func (t TLS) Enabled() bool { return t.CertFile != "" || t.KeyFile != "" || t.SelfSigned }

// SelfSignedFile is the certificate that clients have to trust.
func (t TLS) SelfSignedFile() string { return filepath.Join(t.Dir, "cert.pem") }

// validity of a certificate that the gateway makes. One that has less than a tenth left is made anew.
const validity = 825 * 24 * time.Hour

func (t TLS) config() (*tls.Config, error) {
	certificate, key := t.CertFile, t.KeyFile
	switch {
	case t.SelfSigned && (certificate != "" || key != ""):
		return nil, errors.New("gateway: --tls-self-signed makes a certificate, and --tls-cert names one: give one of them")
	case t.SelfSigned:
		certificate, key = t.SelfSignedFile(), filepath.Join(t.Dir, "key.pem")
		if err := t.selfSign(certificate, key); err != nil {
			return nil, fmt.Errorf("gateway: cannot make a certificate: %w", err)
		}
	case certificate == "" || key == "":
		return nil, errors.New("gateway: --tls-cert and --tls-key go together: give both")
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot use the certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// selfSign leaves alone what is still good.
func (t TLS) selfSign(certificate, key string) error {
	old, err := tls.LoadX509KeyPair(certificate, key)
	if err == nil && time.Until(old.Leaf.NotAfter) > validity/10 && t.namedIn(old.Leaf) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "agbox gateway"}, DNSNames: []string{"localhost", "*.localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	for _, name := range t.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name, "*."+name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(key, "PRIVATE KEY", secret, 0o600),
		writePEM(certificate, "CERTIFICATE", der, 0o644))
}

func (t TLS) namedIn(certificate *x509.Certificate) bool {
	for _, name := range t.Names {
		if certificate.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	_ = os.Remove(path) // its mode may be another
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(file, &pem.Block{Type: kind, Bytes: der}), file.Close())
}
