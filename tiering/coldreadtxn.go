package tiering

import "firn/segment"

// aborted collects the aborted transactions that overlap [first, below), which
// lies in the stream's entry. The marker of a transaction may lie segments later
// (D13): the search goes on until an index says that everything before below is
// decided, and at last to the local log. It waits as a read does.
func (st *coldStream) aborted(first, below int64) (list []segment.AbortedTxn, wait <-chan struct{}, err error) {
	ix, end := st.ix, st.entry.End
	for {
		list = ix.addAborted(list, first, below)
		if ix.openTxn >= below {
			return list, nil, nil
		}
		m, wait, err := st.s.manifest()
		if wait != nil || err != nil {
			return nil, wait, coldError(err)
		}
		if end >= m.ArchivedEnd {
			local, err := st.s.aborted(first, below)
			return append(list, local...), nil, err
		}
		e, wait, err := st.locate(m, end)
		if wait != nil || err != nil {
			return nil, wait, err
		}
		if e == nil {
			return nil, nil, coldError(ErrUnavailable)
		}
		key := e.IndexKey(st.s.Part)
		if wait, err := st.p.known(key); wait != nil || err != nil {
			return nil, wait, err
		}
		ix, wait, err = st.c.indexes.index(st.s.Part, e)
		switch {
		case err != nil && gone(err):
			st.c.indexes.forget(st.s.Part, e)
			wait, err := st.p.missing(m, key, e.Base, e.End, err)
			return nil, wait, err
		case err != nil:
			return nil, nil, coldError(err)
		case wait != nil:
			return nil, wait, nil
		}
		st.p.fine(key)
		end = e.End
	}
}
