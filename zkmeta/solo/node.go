package solo

import (
	"bytes"
	"encoding/binary"
	"strings"

	"go.etcd.io/bbolt"

	"firn/replication/meta"
)

// node is a node with the session that it belongs to, 0 if to none.
type node struct {
	meta.Node
	session uint64
}

const nodeHeader = 4 + 8 + 8

// key is where the node at path stands: parent, 0, name.
func key(path string) []byte {
	i := strings.LastIndexByte(path, '/')
	k := make([]byte, 0, len(path))
	k = append(k, path[:i]...)
	k = append(k, 0)
	return append(k, path[i+1:]...)
}

// parent is the path of the node above, "" for the root.
func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// get reads a node. Its value is valid as long as tx.
func get(tx *bbolt.Tx, path string) (node, bool) {
	if meta.CheckPath(path) != nil {
		return node{}, false
	}
	v := tx.Bucket(nodesBucket).Get(key(path))
	if len(v) < nodeHeader {
		return node{}, false
	}
	return node{
		Node: meta.Node{
			Version: int32(binary.BigEndian.Uint32(v)),
			Rev:     int64(binary.BigEndian.Uint64(v[4:])),
			Value:   v[nodeHeader:],
		},
		session: binary.BigEndian.Uint64(v[12:]),
	}, true
}

func put(tx *bbolt.Tx, path string, n node) error {
	v := make([]byte, 0, nodeHeader+len(n.Value))
	v = binary.BigEndian.AppendUint32(v, uint32(n.Version))
	v = binary.BigEndian.AppendUint64(v, uint64(n.Rev))
	v = binary.BigEndian.AppendUint64(v, n.session)
	return tx.Bucket(nodesBucket).Put(key(path), append(v, n.Value...))
}

// children lists the names below path, sorted.
func children(tx *bbolt.Tx, path string) []string {
	var names []string
	prefix := childPrefix(path)
	c := tx.Bucket(nodesBucket).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		names = append(names, string(k[len(prefix):]))
	}
	return names
}

func hasChildren(tx *bbolt.Tx, path string) bool {
	prefix := childPrefix(path)
	k, _ := tx.Bucket(nodesBucket).Cursor().Seek(prefix)
	return bytes.HasPrefix(k, prefix)
}

func childPrefix(path string) []byte {
	if path == "/" {
		path = ""
	}
	return append([]byte(path), 0)
}
