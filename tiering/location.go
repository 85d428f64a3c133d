package tiering

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"firn/tiering/objstore"
)

// Location is a parsed archive.url.
//
//	file:///dir?create=true
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=…&path_style=true&client=aws|minio&create=true
//
// A custom endpoint takes client=minio and path_style=true unless told
// otherwise; without one it is Amazon's, through its own client.
type Location struct {
	Dir string // of file:

	Bucket, Prefix, Endpoint, Region string // of s3:

	Client          string // aws or minio
	PathStyle       bool
	UnsignedPayload bool

	Create bool
}

// ParseLocation reads an archive.url. Whatever it does not know it refuses: a
// misspelt parameter would otherwise be an archive in another place.
func ParseLocation(rawURL string) (Location, error) {
	l, err := parseLocation(rawURL)
	if err != nil {
		return Location{}, fmt.Errorf("archive.url %q: %w", redacted(rawURL), err)
	}
	return l, nil
}

func parseLocation(rawURL string) (Location, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return Location{}, err
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, err
	}
	switch {
	case u.User != nil:
		return Location{}, errors.New("credentials don't belong into the URL: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
	case u.Fragment != "":
		return Location{}, errors.New("a URL of an archive has no #fragment")
	case u.Scheme == "file":
		return parseFile(u, q)
	case u.Scheme == "s3":
		return parseS3(u, q)
	case u.Scheme == "":
		return Location{}, fmt.Errorf("no scheme: a directory is file://%s, a bucket s3://bucket/prefix", absolute(rawURL))
	}
	return Location{}, fmt.Errorf("unknown scheme %q: it is file:// or s3://", u.Scheme)
}

func parseFile(u *url.URL, q url.Values) (Location, error) {
	p := params{values: q, known: []string{"create"}}
	l := Location{Create: p.flag("create", false)}
	if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
		return Location{}, errors.New("a directory is file:///with/three/slashes, and absolute")
	}
	l.Dir = filepath.FromSlash(u.Path)
	return l, p.err()
}

func parseS3(u *url.URL, q url.Values) (Location, error) {
	p := params{values: q, known: []string{"endpoint", "region", "path_style", "client", "create", "unsigned_payload"}}
	l := Location{
		Bucket:   u.Host,
		Prefix:   strings.Trim(u.Path, "/"),
		Endpoint: p.text("endpoint"),
		Region:   p.text("region"),
		Client:   p.text("client"),
		Create:   p.flag("create", false),
	}
	custom := l.Endpoint != ""
	l.PathStyle = p.flag("path_style", custom)
	l.UnsignedPayload = p.flag("unsigned_payload", false)
	if err := p.err(); err != nil {
		return Location{}, err
	}
	if l.Bucket == "" || u.Port() != "" {
		return Location{}, errors.New("no bucket: it is s3://bucket/prefix; the server goes into endpoint=")
	}
	if custom {
		e, err := url.Parse(l.Endpoint)
		if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" {
			return Location{}, fmt.Errorf("endpoint=%s is not http://host:port or https://host:port", l.Endpoint)
		}
		if e.User != nil || e.RawQuery != "" || strings.Trim(e.Path, "/") != "" {
			return Location{}, fmt.Errorf("endpoint=%s://%s: only scheme, host and port; bucket and prefix stand before the question mark", e.Scheme, e.Host)
		}
		l.Endpoint = e.Scheme + "://" + e.Host
	}
	if l.Prefix != "" {
		if err := objstore.CheckKey(l.Prefix); err != nil {
			return Location{}, err
		}
	}
	switch l.Client {
	case "":
		l.Client = "aws"
		if custom {
			l.Client = "minio"
		}
	case "aws", "minio":
	default:
		return Location{}, fmt.Errorf("client=%s: it is aws or minio", l.Client)
	}
	return l, checkBucket(l.Bucket)
}

// checkBucket holds a bucket's name against S3's rules: the stores word their
// refusals of one as if they could not be reached.
func checkBucket(name string) error {
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	wrong := ""
	switch {
	case len(name) < 3 || len(name) > 63:
		wrong = "it has 3 to 63 characters"
	case strings.ContainsFunc(name, func(r rune) bool { return r > 127 || !alnum(byte(r)) && r != '-' && r != '.' }):
		wrong = "it is made of a-z, 0-9, - and ."
	case !alnum(name[0]) || !alnum(name[len(name)-1]):
		wrong = "it begins and ends with a letter or a digit"
	case strings.Contains(name, ".."):
		wrong = "it has no two dots in a row"
	case net.ParseIP(name) != nil:
		wrong = "it is no IP address; the server goes into endpoint="
	default:
		return nil
	}
	return fmt.Errorf("%q can't be the name of a bucket: %s", name, wrong)
}

// params takes parameters off a query and remembers the first that is wrong.
type params struct {
	values url.Values
	known  []string
	bad    error
}

func (p *params) text(name string) string {
	v := p.values[name]
	if len(v) > 1 && p.bad == nil {
		p.bad = fmt.Errorf("%s is given %d times", name, len(v))
	}
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

func (p *params) flag(name string, unset bool) bool {
	v := p.text(name)
	if v == "" && !p.values.Has(name) {
		return unset
	}
	b, err := strconv.ParseBool(v)
	if err != nil && p.bad == nil {
		p.bad = fmt.Errorf("%s=%s: it is true or false", name, v)
	}
	return b
}

// err tells what is wrong, an unknown parameter first.
func (p *params) err() error {
	var names []string
	for name := range p.values {
		if !slices.Contains(p.known, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return p.bad
	}
	slices.Sort(names)
	name := names[0]
	if like := nearest(name, p.known); like != "" {
		return fmt.Errorf("unknown parameter %q: do you mean %s=?", name, like)
	}
	return fmt.Errorf("unknown parameter %q: there are %s", name, strings.Join(p.known, ", "))
}

// nearest is the name in known that a slip of the finger makes of name, or "".
func nearest(name string, known []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	best, least := "", 3
	for _, k := range known {
		if d := distance(plain(name), plain(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or change between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diag
			if a[i] != b[j] {
				change++
			}
			diag = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func absolute(dir string) string {
	if a, err := filepath.Abs(dir); err == nil {
		return filepath.ToSlash(a)
	}
	return "/dir"
}

// redacted is rawURL without the credentials that somebody put there.
func redacted(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.User == nil {
		return rawURL
	}
	u.User = url.User("xxxxx")
	return u.String()
}
