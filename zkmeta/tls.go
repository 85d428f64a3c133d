package zkmeta

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLSFiles is Kafka's zookeeper.ssl.*.
type TLSFiles struct {
	// Truststore holds the authorities, Keystore our certificate with its key;
	// empty for the system's authorities, and for no certificate.
	Truststore, TruststoreType string
	Keystore, KeystoreType     string
	// AnyHost accepts a certificate whatever host it names.
	AnyHost bool
	// Protocol is the lowest version, TLSv1.2 or TLSv1.3; empty for TLSv1.2.
	Protocol string
}

// LoadTLS reads PEM files. Java's own formats are refused in words.
func LoadTLS(f TLSFiles) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	switch f.Protocol {
	case "", "TLS", "TLSv1.2":
	case "TLSv1.3":
		cfg.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("%w: zookeeper.ssl.protocol=%s is too old, or unknown: TLSv1.2 and TLSv1.3 are there", ErrConfig, f.Protocol)
	}
	if f.Truststore != "" {
		pem, err := readPEM("zookeeper.ssl.truststore", f.Truststore, f.TruststoreType)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: zookeeper.ssl.truststore.location %s holds no certificate in PEM", ErrConfig, f.Truststore)
		}
	}
	if f.Keystore != "" {
		pem, err := readPEM("zookeeper.ssl.keystore", f.Keystore, f.KeystoreType)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(pem), "ENCRYPTED") {
			return nil, fmt.Errorf("%w: the key in zookeeper.ssl.keystore.location %s is encrypted, which is not supported: decrypt it (openssl pkey -in KEY -out PLAIN), and leave it to the file's permissions", ErrConfig, f.Keystore)
		}
		pair, err := tls.X509KeyPair(pem, pem)
		if err != nil {
			return nil, fmt.Errorf("%w: zookeeper.ssl.keystore.location %s: %w", ErrConfig, f.Keystore, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if f.AnyHost {
		trustAnyHost(cfg)
	}
	return cfg, nil
}

func readPEM(key, path, kind string) ([]byte, error) {
	if kind == "" && (strings.HasSuffix(path, ".jks") || strings.HasSuffix(path, ".p12") || strings.HasSuffix(path, ".pfx")) {
		kind = "JKS or PKCS12"
	}
	if kind != "" && !strings.EqualFold(kind, "PEM") {
		return nil, fmt.Errorf("%w: %s.type is %s, but only PEM is read here: convert it "+
			"(keytool -importkeystore -srckeystore %s -destkeystore out.p12 -deststoretype PKCS12, then openssl pkcs12 -in out.p12 -out out.pem -nodes) and set %s.type=PEM", ErrConfig, key, kind, path, key)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s.location: %w", ErrConfig, key, err)
	}
	return b, nil
}

// trustAnyHost verifies the server's chain, but not the name in it.
func trustAnyHost(cfg *tls.Config) {
	roots := cfg.RootCAs
	cfg.InsecureSkipVerify = true // VerifyConnection does it, but for the name
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("zkmeta: the server has no certificate")
		}
		o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}
