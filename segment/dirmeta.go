package segment

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"firn/segment/vfs"
)

const (
	metaFile      = "meta.properties"
	cleanFile     = ".kafka_cleanshutdown"
	partitionFile = "partition.metadata"
	smallFile     = 64 << 20 // more than any of these files is
)

// Meta is the meta.properties of a log directory: whose it is.
type Meta struct {
	// Version is 0 for a broker with ZooKeeper, whose id is broker.id, and 1
	// for one with KRaft, whose id is node.id.
	Version     int
	BrokerID    int32
	ClusterID   string
	DirectoryID string
}

var errMeta = errors.New("segment: " + metaFile + " is damaged")

func parseMeta(b []byte) (Meta, error) {
	m := Meta{BrokerID: -1}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(sc.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		switch strings.TrimSpace(key) {
		case "version":
			v, err := strconv.Atoi(value)
			if err != nil || v < 0 || v > 1 {
				return Meta{}, fmt.Errorf("%w: version %q", errMeta, value)
			}
			m.Version = v
		case "broker.id", "node.id":
			v, err := strconv.ParseInt(value, 10, 32)
			if err != nil || v < 0 {
				return Meta{}, fmt.Errorf("%w: %s %q", errMeta, key, value)
			}
			m.BrokerID = int32(v)
		case "cluster.id":
			m.ClusterID = value
		case "directory.id":
			m.DirectoryID = value
		}
	}
	return m, sc.Err()
}

func (m Meta) append(dst []byte) []byte {
	id := "broker.id"
	if m.Version == 1 {
		id = "node.id"
	}
	dst = fmt.Appendf(dst, "#\n%s=%d\n", id, m.BrokerID)
	if m.ClusterID != "" {
		dst = fmt.Appendf(dst, "cluster.id=%s\n", m.ClusterID)
	}
	if m.DirectoryID != "" {
		dst = fmt.Appendf(dst, "directory.id=%s\n", m.DirectoryID)
	}
	return fmt.Appendf(dst, "version=%d\n", m.Version)
}

// newDirectoryID is a random id in Kafka's writing of UUIDs.
func newDirectoryID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return formatID(id)
}

func formatID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseID(s string) (id [16]byte, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("segment: %q is no topic id", s)
	}
	return [16]byte(b), nil
}

// readTopicID reads a partition.metadata; false if there is none. One without
// content, which a power loss leaves where the rename outlived the bytes, is
// errTopicIDEmpty: it names no other topic.
func readTopicID(fsys vfs.FS, dir string) ([16]byte, bool, error) {
	b, err := readFile(fsys, filepath.Join(dir, partitionFile), 4096)
	if err != nil || b == nil {
		return [16]byte{}, false, err
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return [16]byte{}, false, fmt.Errorf("%w: %s", errTopicIDEmpty, dir)
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && key == "topic_id" {
			if id, err := parseID(strings.TrimSpace(value)); err == nil {
				return id, true, nil
			}
		}
	}
	return [16]byte{}, false, fmt.Errorf("%w: %s", errTopicIDFile, dir)
}

var (
	errTopicIDFile  = errors.New("segment: " + partitionFile + " is damaged")
	errTopicIDEmpty = fmt.Errorf("%w: it is empty", errTopicIDFile)
)

func writeTopicID(fsys vfs.FS, dir string, id [16]byte, durable bool) error {
	b := fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", formatID(id))
	return replaceFile(fsys, filepath.Join(dir, partitionFile), b, durable)
}

// cleanMark is the content of the clean-shutdown mark: Kafka's fields, and what
// the cluster compares it with.
type cleanMark struct {
	Version     int    `json:"version"`
	BrokerEpoch int64  `json:"brokerEpoch"`
	StorageID   string `json:"storageId,omitempty"`
	Nonce       string `json:"nonce,omitempty"`
}

// CleanMark tells what a clean stop of an incarnation leaves behind.
type CleanMark struct {
	BrokerEpoch int64
	StorageID   string
	Nonce       string
}

func (m CleanMark) append(dst []byte) []byte {
	b, err := json.Marshal(cleanMark{0, m.BrokerEpoch, m.StorageID, m.Nonce})
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return append(dst, b...)
}

// parseCleanMark reads a mark; Kafka before 3.7 left an empty file.
func parseCleanMark(b []byte) CleanMark {
	m := cleanMark{BrokerEpoch: -1}
	if json.Unmarshal(b, &m) != nil {
		return CleanMark{BrokerEpoch: -1}
	}
	return CleanMark{m.BrokerEpoch, m.StorageID, m.Nonce}
}

// parseDirName splits the name of a partition's directory.
func parseDirName(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	p, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || p < 0 || !validTopic(name[:i]) || name != (TopicPartition{name[:i], int32(p)}).String() {
		return TopicPartition{}, false
	}
	return TopicPartition{name[:i], int32(p)}, true
}

// validTopic tells a name that Kafka allows for a topic, and that is safe as
// part of a file name.
func validTopic(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
