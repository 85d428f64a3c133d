package tiering

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firn/tiering/objstore"
	"firn/tiering/objstoretest"
)

func TestParseLocation(t *testing.T) {
	for _, c := range []struct {
		url  string
		want Location
	}{
		{"file:///var/lib/firn", Location{Dir: "/var/lib/firn"}},
		{"file:///a%20b?create=true", Location{Dir: "/a b", Create: true}},
		{"s3://events", Location{Bucket: "events", Client: "aws"}},
		{"s3://events/a/b/?region=eu-central-1", Location{Bucket: "events", Prefix: "a/b", Region: "eu-central-1", Client: "aws"}},
		{"s3://events?client=minio", Location{Bucket: "events", Client: "minio"}},
		{"s3://events?endpoint=http://127.0.0.1:9000&create=true",
			Location{Bucket: "events", Endpoint: "http://127.0.0.1:9000", Client: "minio", PathStyle: true, Create: true}},
		{"s3://events/p?endpoint=https://s3.example.com/&client=aws&path_style=false",
			Location{Bucket: "events", Prefix: "p", Endpoint: "https://s3.example.com", Client: "aws"}},
		{"s3://events?endpoint=http://h:1&unsigned_payload=1",
			Location{Bucket: "events", Endpoint: "http://h:1", Client: "minio", PathStyle: true, UnsignedPayload: true}},
	} {
		got, err := ParseLocation(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
		} else if got != c.want {
			t.Errorf("%s = %+v\nwant %+v", c.url, got, c.want)
		}
	}
}

func TestParseLocationSaysWhatIsWrong(t *testing.T) {
	for url, say := range map[string]string{
		"s3://b?endpont=http://h":                      "do you mean endpoint=",
		"s3://b?pathStyle=true":                        "do you mean path_style=",
		"s3://b?bucket=x":                              "there are endpoint, region",
		"file:///d?creat=true":                         "do you mean create=",
		"file:///d?region=x":                           "there are create",
		"s3://b?create=maybe":                          "true or false",
		"s3://b?region=a&region=b":                     "2 times",
		"s3://b?client=boto":                           "aws or minio",
		"s3://b?endpoint=127.0.0.1:9000":               "http://host:port",
		"s3://b?endpoint=http://h/bucket":              "only scheme, host and port",
		"s3:///prefix":                                 "no bucket",
		"s3://127.0.0.1:9000/bucket":                   "endpoint=",
		"s3://key:secret@b":                            "credentials",
		"s3://b/a/../c":                                "element",
		"/var/lib/firn":                                "file:///var/lib/firn",
		"file://var/lib":                               "three/slashes",
		"gs://b":                                       "file:// or s3://",
		"s3://b?%zz":                                   "archive.url",
		"s3://b?endpoint=http://u:hush@h&client=minio": "only scheme",
		"s3://My_Bucket":                               "a-z",
		"s3://Events?endpoint=http://h":                "a-z",
		"s3://b\u00fccher":                             "a-z",
		"s3://ab":                                      "3 to 63",
		"s3://" + strings.Repeat("a", 64):              "3 to 63",
		"s3://-abc":                                    "begins and ends",
		"s3://abc.":                                    "begins and ends",
		"s3://a..b":                                    "two dots",
		"s3://192.168.0.1/p":                           "endpoint=",
	} {
		_, err := ParseLocation(url)
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v\nwant it to say %q", url, err, say)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the secret: %v", url, err)
		}
	}
}

func TestOpenStoreOfADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	_, err := OpenStore(t.Context(), "file://"+dir, OpenOptions{})
	if err == nil || !strings.Contains(err.Error(), "create=true") {
		t.Errorf("a missing directory: %v, want the parameter's name", err)
	}
	_, err = OpenStore(t.Context(), "file://"+dir+"?create=true", OpenOptions{Existing: true})
	if _, stat := os.Stat(dir); err == nil || strings.Contains(err.Error(), "create=true") || stat == nil {
		t.Errorf("a missing directory that must be there: %v; made: %v", err, stat == nil)
	}
	for _, o := range []struct {
		url string
		OpenOptions
	}{{"file://" + dir + "?create=true", OpenOptions{MinFree: -1}}, {"file://" + dir + "2", OpenOptions{Create: true, MinFree: -1}}} {
		s, err := OpenStore(t.Context(), o.url, o.OpenOptions)
		if err != nil {
			t.Fatal(err)
		}
		if err := objstore.Probe(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(t.Context(), "file://"+file, OpenOptions{}); err == nil {
		t.Error("a file was opened as an archive")
	}
}

// Nothing listens there: an outage at start is one in words, or a store all the
// same for who is known to use it.
func TestOpenStoreOfAnUnreachableBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	for _, client := range []string{"aws", "minio"} {
		url := "s3://bucket?endpoint=http://127.0.0.1:1&client=" + client
		_, err := OpenStore(t.Context(), url, OpenOptions{})
		if err == nil || !strings.Contains(err.Error(), "can't reach the bucket bucket at http://127.0.0.1:1") {
			t.Errorf("%s: %v", client, err)
		}
		s, err := OpenStore(t.Context(), url, OpenOptions{AllowUnreachable: true})
		if err != nil {
			t.Fatalf("%s: %v", client, err)
		}
		_, err = s.GetRange(t.Context(), "k", 0, -1)
		if err == nil || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrDenied) {
			t.Errorf("%s: GetRange = %v, want an outage", client, err)
		}
	}
}

// A store that answers, and gives no bucket of this name, is not one that is away.
func TestOpenStoreOfABucketThatIsRefused(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "<Error><Code>InvalidBucketName</Code><Message>said the test</Message></Error>")
	}))
	defer srv.Close()
	for _, client := range []string{"aws", "minio"} {
		_, err := OpenStore(t.Context(), "s3://xn--bucket?create=true&endpoint="+srv.URL+"&client="+client, OpenOptions{AllowUnreachable: true})
		if err == nil || !strings.Contains(err.Error(), "refuses the bucket's name xn--bucket") {
			t.Errorf("%s: %v", client, err)
		}
		// Who needs what is there makes no bucket, and is not told to.
		_, err = OpenStore(t.Context(), "s3://xn--bucket?create=true&endpoint="+srv.URL+"&client="+client, OpenOptions{Existing: true})
		if err == nil || !strings.Contains(err.Error(), "the bucket xn--bucket does not exist, so there is no archive in it") {
			t.Errorf("%s: %v", client, err)
		}
	}
}

// Replies that are not what was asked for, through both clients (D16).
func TestHostileReplies(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	for _, client := range []string{"aws", "minio"} {
		t.Run(client, func(t *testing.T) {
			objstoretest.RunHTTP(t, func(t *testing.T, endpoint string) objstore.Store {
				s, err := OpenStore(t.Context(), "s3://bucket?endpoint="+endpoint+"&client="+client, OpenOptions{AllowUnreachable: true})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

// FuzzParseLocation: whatever an operator writes, it is refused or names one place.
func FuzzParseLocation(f *testing.F) {
	f.Add("file:///var/lib/firn?create=true")
	f.Add("s3://events/p?endpoint=http://127.0.0.1:9000&client=aws&path_style=0")
	f.Add("s3://k:s@b?endpoint=%zz")
	f.Fuzz(func(t *testing.T, url string) {
		l, err := ParseLocation(url)
		if err == nil && (l.Dir == "") == (l.Bucket == "") {
			t.Errorf("%q = %+v", url, l)
		}
		if err == nil && l.Bucket != "" && l.Client != "aws" && l.Client != "minio" {
			t.Errorf("%q = %+v", url, l)
		}
	})
}
