package objstore

import "io"

// File is a file that an object lies in.
type File interface {
	io.ReaderAt
	io.Closer
}

// Filed is what the stream of a GetRange may have besides: the object is a file
// of this machine, which can be sent from there once it has been verified.
type Filed interface {
	// TakeFile hands that file over, to be closed by who took it: it outlives the
	// stream, which goes on. The stream's next byte lies at off. The file never
	// changes, whatever becomes of the key. ok is false if there is none.
	TakeFile() (f File, off int64, ok bool)
}

// TakeFile is r.TakeFile, for a stream that has it.
func TakeFile(r io.Reader) (f File, off int64, ok bool) {
	if r, is := r.(Filed); is {
		return r.TakeFile()
	}
	return nil, 0, false
}
