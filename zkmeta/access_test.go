package zkmeta

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// TestAccessLists: what we create, only we can change, and what is secret only we
// can read (B13).
func TestAccessLists(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	connect := e.Chroot()
	ours := open(t, Config{Connect: connect, SetACL: true, Digest: "firn:secret"})
	defer closeStore(t, ours)
	if err := meta.Init(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, ours, create("/config/brokers/1"), announce("t"))
	for name, digest := range map[string]string{"Nobody": "", "WrongPassword": "firn:wrong"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{Connect: connect, Digest: digest})
			defer closeStore(t, s)
			for _, o := range []meta.Op{create("/mine"), set("/brokers", "x", meta.AnyVersion), create("/brokers/ids/7"), announce("lie"),
				{Kind: meta.Delete, Path: "/cluster", Version: meta.AnyVersion}} {
				err := s.Commit(bounded(t, limit), o)
				if !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("%+v = %v", o, err)
				}
			}
			if _, err := s.Get(bounded(t, limit), "/brokers"); err != nil {
				t.Errorf("what isn't secret can't be read: %v", err)
			}
			if _, err := s.Get(bounded(t, limit), "/config/brokers/1"); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("a secret can be read: %v", err)
			}
		})
	}
	same := open(t, Config{Connect: connect, SetACL: true, Digest: "firn:secret"})
	defer closeStore(t, same)
	mustCommit(t, same, set("/config/brokers/1", "x", 0), create("/brokers/ids/7"), announce("t"))
	// Nothing that stands below the chroot can be changed by the world.
	world := 0
	walk(t, ours, "/", func(path string, acl []zk.ACL) {
		for _, a := range acl {
			if a.Scheme == "world" && a.Perms&^zk.PermRead != 0 {
				t.Errorf("%s can be changed by the world: %+v", path, acl)
			}
			world++
		}
	})
	if world < 10 {
		t.Errorf("only %d access lists seen", world)
	}
}

func walk(t *testing.T, s *Store, path string, f func(string, []zk.ACL)) {
	t.Helper()
	x, err := s.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acl, _, err := x.conn.GetACL(x.path(path))
	if err != nil {
		t.Fatal(err)
	}
	f(path, acl)
	names, err := s.Children(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		walk(t, s, strings.TrimSuffix(path, "/")+"/"+name, f)
	}
}

func TestAccessListsNeedSomebody(t *testing.T) {
	for _, c := range []Config{{SetACL: true}, {Digest: "no colon"}} {
		c.Connect = "127.0.0.1:1"
		if _, err := Open(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v = %v", c, err)
		}
	}
}

// authority issues certificates as PEM files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	Path string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.Path = a.issue("authority", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue makes a certificate and returns the file that holds it with its key.
func (a *authority) issue(name string, c *x509.Certificate) string {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check := func(err error) {
		if err != nil {
			a.t.Helper()
			a.t.Fatal(err)
		}
	}
	check(err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if a.cert == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	check(err)
	if c == a.cert {
		a.cert, err = x509.ParseCertificate(der)
		check(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), cert...)
	if c.IsCA {
		both = cert
	}
	path := filepath.Join(a.dir, name+".pem")
	check(os.WriteFile(path, both, 0o600))
	return path
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	serverPEM := ca.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	elsewhere := ca.issue("elsewhere", &x509.Certificate{DNSNames: []string{"elsewhere.example"}})
	clientPEM := ca.issue("client", &x509.Certificate{})
	start := func(pem string) string {
		e := zktest.StartN(t, 1, zktest.Options{Secure: true, Config: []string{
			"ssl.keyStore.location=" + pem, "ssl.keyStore.type=PEM",
			"ssl.trustStore.location=" + ca.Path, "ssl.trustStore.type=PEM", "ssl.clientAuth=need"}})
		return e.Nodes[0].Secure + "/tls"
	}
	dial := func(connect string, f TLSFiles) (*Store, error) {
		cfg, err := LoadTLS(f)
		if err != nil {
			return nil, err
		}
		return Open(t.Context(), Config{Connect: connect, TLS: cfg, SetACL: true, SessionTimeout: 30 * time.Second, ConnectTimeout: limit})
	}
	connect := start(serverPEM)
	files := TLSFiles{Truststore: ca.Path, Keystore: clientPEM}
	s, err := dial(connect, files)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	// Whose the nodes are, the certificate says.
	mustCommit(t, s, create("/a"), announce("t"))
	walk(t, s, "/a", func(_ string, acl []zk.ACL) {
		if acl[0].Scheme != "x509" || !strings.Contains(acl[0].ID, "CN=client") {
			t.Errorf("access list %+v", acl)
		}
	})

	refused := func(what string, connect string, f TLSFiles) {
		t.Helper()
		cfg, err := LoadTLS(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Connect: connect, TLS: cfg, SessionTimeout: 5 * time.Second, ConnectTimeout: time.Second})
		if err == nil {
			closeStore(t, s)
			t.Errorf("%s was accepted", what)
		} else if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a client without a certificate", connect, TLSFiles{Truststore: ca.Path})
	refused("a server of an unknown authority", connect, TLSFiles{Truststore: newAuthority(t).Path, Keystore: clientPEM})

	other := start(elsewhere)
	refused("a server with another's name", other, files)
	files.AnyHost = true
	if s, err = dial(other, files); err != nil {
		t.Fatalf("whatever its name: %v", err)
	}
	closeStore(t, s)
	files.Truststore = newAuthority(t).Path
	refused("whatever its name, but of an unknown authority", other, files)
}

func TestTLSFilesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		f    TLSFiles
		word string
	}{
		{TLSFiles{Truststore: file("a.jks", "x")}, "keytool"},
		{TLSFiles{Keystore: file("a.pem", "x"), KeystoreType: "PKCS12"}, "keytool"},
		{TLSFiles{Truststore: dir + "/none.pem"}, "no such file"},
		{TLSFiles{Truststore: file("b.pem", "x")}, "no certificate"},
		{TLSFiles{Keystore: file("c.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n")}, "encrypted"},
		{TLSFiles{Keystore: file("d.pem", "x")}, "keystore"},
		{TLSFiles{Protocol: "TLSv1.1"}, "TLSv1.2"},
	} {
		if _, err := LoadTLS(c.f); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%+v = %v", c.f, err)
		}
	}
}
