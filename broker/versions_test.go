package broker

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flag.Bool("update", false, "write testdata anew")

// TestEveryVersionIsAnswered sends each API in each advertised version over a
// connection, as empty as it can be and with an entry in every list, and holds
// the codes that come back against testdata/codes.txt.
func TestEveryVersionIsAnswered(t *testing.T) {
	n := groupNode(t, "auto.create.topics.enable=false", "offsets.topic.num.partitions=1")
	n.create("known", 1)
	n.findCoordinator("any")
	n.fetchOffset("any", "known")
	var got strings.Builder
	for _, a := range apis() {
		for _, full := range []bool{false, true} {
			var line string
			for v := a.min; v <= a.max; v++ {
				codes := answerCodes(t, n, a, v, full)
				if s := fmt.Sprintf(": %s\n", strings.Join(codes, " ")); !strings.HasSuffix(line, s) {
					line += fmt.Sprintf("%s%s v%d%s", a.key.Name(), map[bool]string{true: " full"}[full], v, s)
				}
			}
			got.WriteString(line)
		}
	}
	path := filepath.Join("testdata", "codes.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// answerCodes sends one request and returns the error codes of its answer, whose
// bytes must be what kmsg would have written.
func answerCodes(t *testing.T, n *node, a api, version int16, full bool) []string {
	t.Helper()
	req := a.key.Request()
	req.SetVersion(version)
	if full {
		fillIn(reflect.ValueOf(req).Elem(), fmt.Sprintf("group-%d-%d", a.key, version))
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		p.Acks = -1
	}
	c := n.dial()
	defer c.c.Close()
	want := c.send(req)
	corr, body := c.frame()
	if corr != want {
		t.Fatalf("%s v%d: answer to request %d, want %d", a.key.Name(), version, corr, want)
	}
	if req.IsFlexible() && a.key != kmsg.ApiVersions {
		if body[0] != 0 {
			t.Fatalf("%s v%d: tags in the header", a.key.Name(), version)
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: %v", a.key.Name(), version, err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		t.Errorf("%s v%d: the answer has %d bytes, kmsg makes %d of it:\n%x\n%x", a.key.Name(), version, len(body), len(again), body, again)
	}
	codes := map[string]bool{}
	collectCodes(reflect.ValueOf(resp), codes)
	return slices.Sorted(maps.Keys(codes))
}

// fillIn puts an entry into every list of a request, and a name into every string.
func fillIn(v reflect.Value, group string) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "Version" || name == "UnknownTags" || f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
		case f.Kind() == reflect.String && name == "Group":
			f.SetString(group)
		case f.Kind() == reflect.String:
			f.SetString("none")
		case f.Kind() == reflect.Struct:
			fillIn(f, group)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.String && name != "InstanceID" && name != "Rack":
			none := "none"
			f.Set(reflect.ValueOf(&none))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() != reflect.Uint8:
			entry := reflect.New(f.Type().Elem())
			if d, ok := entry.Interface().(interface{ Default() }); ok {
				d.Default()
			}
			switch e := entry.Elem(); e.Kind() {
			case reflect.Struct:
				fillIn(e, group)
			case reflect.String:
				e.SetString("none")
			}
			f.Set(reflect.Append(f, entry.Elem()))
		}
	}
}

// collectCodes gathers the names of all error codes in a response.
func collectCodes(v reflect.Value, into map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collectCodes(v.Elem(), into)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collectCodes(v.Index(i), into)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "ErrorCode" {
				collectCodes(v.Field(i), into)
			} else if err := kerr.TypedErrorForCode(int16(v.Field(i).Int())); err != nil {
				into[err.Message] = true
			} else {
				into["NONE"] = true
			}
		}
	}
}

// TestAVersionBeyondTheTableClosesTheConnection: of every API but ApiVersions,
// which tells what would do.
func TestAVersionBeyondTheTableClosesTheConnection(t *testing.T) {
	n := startNode(t, t.TempDir())
	for _, a := range apis() {
		for _, v := range []int16{a.min - 1, a.max + 1} {
			c := n.dial()
			frame := binary.BigEndian.AppendUint32(nil, 12)
			frame = binary.BigEndian.AppendUint16(frame, uint16(a.key))
			frame = binary.BigEndian.AppendUint16(frame, uint16(v))
			frame = append(frame, 0, 0, 0, 9, 0xff, 0xff, 0, 0)
			if _, err := c.c.Write(frame); err != nil {
				t.Fatal(err)
			}
			if a.key != kmsg.ApiVersions {
				c.closed()
				continue
			}
			resp := kmsg.NewPtrApiVersionsResponse()
			if corr, body := c.frame(); corr != 9 || resp.ReadFrom(body) != nil || resp.ErrorCode != kerr.UnsupportedVersion.Code {
				t.Errorf("ApiVersions v%d is answered with %+v", v, resp)
			}
		}
	}
}
