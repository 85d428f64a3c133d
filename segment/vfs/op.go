package vfs

import "fmt"

// Kind is the kind of an Op.
type Kind uint8

const (
	OpCreate Kind = iota // OpenFile that made the file, or may (O_CREATE)
	OpOpen               // OpenFile without O_CREATE
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpSize
	OpClose
	OpRemove
	OpRename
	OpMkdir
	OpReadDir
	OpStat
	OpSyncDir
	OpFree
	OpLock
)

var kindNames = [...]string{
	"create", "open", "read", "write", "truncate", "sync", "size", "close",
	"remove", "rename", "mkdir", "readdir", "stat", "syncdir", "free", "lock",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("op(%d)", uint8(k))
}

// Op is one call, as Inject asks about it and Mem tells of it.
type Op struct {
	Kind    Kind
	Name    string
	NewName string // OpRename
	Off     int64  // OpRead, OpWrite; the size for OpTruncate
	Len     int    // OpRead, OpWrite
}

// Changes tells whether a crash just after op may leave something else than a
// crash just before it.
func (op Op) Changes() bool {
	switch op.Kind {
	case OpCreate, OpWrite, OpTruncate, OpSync, OpRemove, OpRename, OpMkdir, OpSyncDir:
		return true
	}
	return false
}

// String is one line of a trace, for golden files.
func (op Op) String() string {
	switch op.Kind {
	case OpRead, OpWrite:
		return fmt.Sprintf("%v %s [%d,%d)", op.Kind, op.Name, op.Off, op.Off+int64(op.Len))
	case OpTruncate:
		return fmt.Sprintf("%v %s %d", op.Kind, op.Name, op.Off)
	case OpRename:
		return fmt.Sprintf("%v %s %s", op.Kind, op.Name, op.NewName)
	}
	return fmt.Sprintf("%v %s", op.Kind, op.Name)
}
