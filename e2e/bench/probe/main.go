//go:build linux

// Command probe is a throw-away, single-node Kafka-protocol server that has the hot path
// which the design brief proposes and nothing else. It's there to measure what Go can do.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	_ "net/http/pprof"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	port     = flag.Int("port", 19093, "")
	dir      = flag.String("dir", "probe-data", "")
	doCRC    = flag.Bool("crc", true, "verify the batch CRC")
	fetchHow = flag.String("fetch", "sendfile", "sendfile or pread")
	fsyncHow = flag.String("fsync", "none", "none, group (before ack, shared), each (before ack)")
	gogc     = flag.Int("gogc", 400, "")
	kmsgHot  = flag.Bool("kmsg", false, "decode/encode produce and fetch with kmsg, one allocation a frame (the easy way)")
	pprofAt  = flag.String("pprof", "", "")
	lowat    = flag.Int("lowat", 16384, "TCP_NOTSENT_LOWAT (0: the system's): keeps what waits in the socket small enough for the cache")
	sndbuf   = flag.Int("sndbuf", 0, "SO_SNDBUF (0: auto)")
	rcvbuf   = flag.Int("rcvbuf", 0, "SO_RCVBUF (0: auto)")
	coalesce = flag.Bool("coalesce", false, "hold acks while whole requests are still in the read buffer")
	rbuf     = flag.Int("rbuf", 256<<10, "read buffer")
	noWrite  = flag.Bool("nowrite", false, "don't write (upper bound)")
)

var tab = crc32.MakeTable(crc32.Castagnoli)
var be = binary.BigEndian

type entry struct {
	off int64 // base offset
	pos int64
}

type part struct {
	mu      sync.Mutex
	f       *os.File
	size    int64
	next    int64
	idx     []entry
	lastIdx int64
	waiters []chan struct{}
	// group fsync
	synced   int64
	syncing  bool
	syncCond *sync.Cond
}

type topic struct {
	name  string
	parts []*part
}

var (
	topics sync.Map // name -> *topic
	nfsync atomic.Int64
)

func newTopic(name string, n int) *topic {
	t := &topic{name: name}
	for i := range n {
		f, err := os.Create(filepath.Join(*dir, fmt.Sprintf("%s-%d.log", name, i)))
		if err != nil {
			panic(err)
		}
		p := &part{f: f, lastIdx: -1 << 40}
		p.syncCond = sync.NewCond(&p.mu)
		t.parts = append(t.parts, p)
	}
	topics.Store(name, t)
	return t
}

// appendBatches patches and writes; returns the base offset or an error code.
func (p *part) appendBatches(b []byte) (int64, int16) {
	// validate outside the lock
	for r := b; len(r) > 0; {
		if len(r) < 61 {
			return -1, 2
		}
		n := 12 + int(be.Uint32(r[8:]))
		if n > len(r) || n < 61 || r[16] != 2 {
			return -1, 2
		}
		if *doCRC && crc32.Checksum(r[21:n], tab) != be.Uint32(r[17:]) {
			return -1, 2
		}
		r = r[n:]
	}
	p.mu.Lock()
	base := p.next
	pos := p.size
	for r := b; len(r) > 0; {
		n := 12 + int(be.Uint32(r[8:]))
		be.PutUint64(r, uint64(p.next))
		be.PutUint32(r[12:], 0)
		if pos-p.lastIdx >= 4096 {
			p.idx = append(p.idx, entry{p.next, pos})
			p.lastIdx = pos
		}
		p.next += int64(be.Uint32(r[23:])) + 1
		pos += int64(n)
		r = r[n:]
	}
	if !*noWrite {
		if _, err := p.f.WriteAt(b, p.size); err != nil {
			p.mu.Unlock()
			return -1, 56
		}
	}
	p.size = pos
	switch *fsyncHow {
	case "each":
		syscall.Fdatasync(int(p.f.Fd()))
		nfsync.Add(1)
	case "group":
		for p.synced < pos {
			if p.syncing {
				p.syncCond.Wait()
				continue
			}
			p.syncing = true
			upto := p.size
			p.mu.Unlock()
			syscall.Fdatasync(int(p.f.Fd()))
			nfsync.Add(1)
			p.mu.Lock()
			p.syncing = false
			p.synced = max(p.synced, upto)
			p.syncCond.Broadcast()
		}
	}
	if *fsyncHow == "pipe" && !p.syncing {
		p.syncing = true
		go p.syncLoop()
	}
	ws := p.waiters
	p.waiters = nil
	p.mu.Unlock()
	for _, w := range ws {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return base, 0
}

// syncLoop syncs while there's something unsynced; every ack that came meanwhile shares the next sync.
func (p *part) syncLoop() {
	p.mu.Lock()
	for p.synced < p.size {
		upto := p.size
		p.mu.Unlock()
		syscall.Fdatasync(int(p.f.Fd()))
		nfsync.Add(1)
		p.mu.Lock()
		p.synced = max(p.synced, upto)
		p.syncCond.Broadcast()
	}
	p.syncing = false
	p.mu.Unlock()
}

func (p *part) waitSynced(upto int64) {
	p.mu.Lock()
	for p.synced < upto {
		p.syncCond.Wait()
	}
	p.mu.Unlock()
}

type pend struct {
	out  []byte
	p    []*part
	upto []int64
}

func (c *conn) responder() {
	for pd := range c.pq {
		for i, p := range pd.p {
			p.waitSynced(pd.upto[i])
		}
		c.c.Write(pd.out)
	}
}

// locate finds the file range for a fetch at off of at most max bytes (whole first batch at least).
func (p *part) locate(off int64, maxb int64) (pos, n, hw int64, code int16) {
	p.mu.Lock()
	hw = p.next
	size := p.size
	if off > hw || off < 0 {
		p.mu.Unlock()
		return 0, 0, hw, 1
	}
	if off == hw {
		p.mu.Unlock()
		return 0, 0, hw, 0
	}
	i := sort.Search(len(p.idx), func(i int) bool { return p.idx[i].off > off }) - 1
	pos = p.idx[i].pos
	p.mu.Unlock()
	// walk headers from the index entry to the batch that has off
	var h [27]byte
	for pos < size {
		if _, err := p.f.ReadAt(h[:], pos); err != nil {
			return 0, 0, hw, 56
		}
		bn := 12 + int64(be.Uint32(h[8:]))
		last := int64(be.Uint64(h[:])) + int64(be.Uint32(h[23:]))
		if last >= off {
			n = max(min(maxb, size-pos), bn)
			return pos, n, hw, 0
		}
		pos += bn
	}
	return 0, 0, hw, 0
}

type conn struct {
	c    *net.TCPConn
	rc   syscall.RawConn
	in   []byte // read buffer
	r    int
	w    int
	out  []byte
	ch   chan struct{}
	fp   []fpart
	pq   chan pend
	pend []byte
}

type fpart struct {
	p    *part
	part int32
	off  int64
	max  int64
	pos  int64
	n    int64
	hw   int64
	code int16
}

func (c *conn) frame() ([]byte, error) {
	for {
		if c.w-c.r >= 4 {
			n := int(be.Uint32(c.in[c.r:]))
			if n > 110<<20 {
				return nil, fmt.Errorf("frame too large")
			}
			if c.w-c.r >= 4+n {
				b := c.in[c.r+4 : c.r+4+n]
				c.r += 4 + n
				return b, nil
			}
			if 4+n > len(c.in) {
				nb := make([]byte, 4+n+64<<10)
				copy(nb, c.in[c.r:c.w])
				c.w -= c.r
				c.r = 0
				c.in = nb
			} else if c.r+4+n > len(c.in) {
				copy(c.in, c.in[c.r:c.w])
				c.w -= c.r
				c.r = 0
			}
		} else if c.r == c.w {
			c.r, c.w = 0, 0
		} else if len(c.in)-c.r < 4 {
			copy(c.in, c.in[c.r:c.w])
			c.w -= c.r
			c.r = 0
		}
		if len(c.pend) > 0 {
			if _, err := c.c.Write(c.pend); err != nil {
				return nil, err
			}
			c.pend = c.pend[:0]
		}
		k, err := c.c.Read(c.in[c.w:])
		if err != nil {
			return nil, err
		}
		c.w += k
	}
}

func (c *conn) flushOut() error {
	if len(c.pend) > 0 {
		if _, err := c.c.Write(c.pend); err != nil {
			return err
		}
		c.pend = c.pend[:0]
	}
	_, err := c.c.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *conn) sendfile(f *os.File, pos, n int64) error {
	var serr error
	off := pos
	for n > 0 {
		err := c.rc.Write(func(fd uintptr) bool {
			for n > 0 {
				k, err := unix.Sendfile(int(fd), int(f.Fd()), &off, int(n))
				if err == unix.EAGAIN {
					return false
				}
				if err == unix.EINTR {
					continue
				}
				if err != nil || k == 0 {
					serr = err
					if serr == nil {
						serr = io.ErrUnexpectedEOF
					}
					return true
				}
				n -= int64(k)
			}
			return true
		})
		if err != nil {
			return err
		}
		if serr != nil {
			return serr
		}
	}
	return nil
}

func serve(tc *net.TCPConn) {
	defer tc.Close()
	rc, _ := tc.SyscallConn()
	c := &conn{c: tc, rc: rc, in: make([]byte, *rbuf), ch: make(chan struct{}, 1)}
	for {
		b, err := c.frame()
		if err != nil {
			return
		}
		if len(b) < 8 {
			return
		}
		key, ver, corr := int16(be.Uint16(b)), int16(be.Uint16(b[2:])), int32(be.Uint32(b[4:]))
		body := b[8:]
		if cl := int16(be.Uint16(body)); cl > 0 {
			body = body[2+cl:]
		} else {
			body = body[2:]
		}
		switch {
		case key == 0 && !*kmsgHot:
			err = c.produce(ver, corr, body)
		case key == 1 && !*kmsgHot:
			err = c.fetch(ver, corr, body)
		default:
			err = c.slow(key, ver, corr, body)
		}
		if err != nil {
			if err != io.EOF {
				fmt.Fprintln(os.Stderr, "conn:", err)
			}
			return
		}
	}
}

func rdStr(b []byte) ([]byte, []byte) {
	n := int16(be.Uint16(b))
	if n < 0 {
		return nil, b[2:]
	}
	return b[2 : 2+n], b[2+n:]
}

func lookup(name []byte) *topic {
	v, _ := topics.Load(string(name))
	if v == nil {
		return nil
	}
	return v.(*topic)
}

// produce v3..v8 (non flexible)
func (c *conn) produce(ver int16, corr int32, b []byte) error {
	var pd pend
	pipe := *fsyncHow == "pipe"
	_, b = rdStr(b) // transactional id
	acks := int16(be.Uint16(b))
	b = b[6:]
	o := append(c.out[:0], 0, 0, 0, 0)
	o = be.AppendUint32(o, uint32(corr))
	nt := int(be.Uint32(b))
	b = b[4:]
	o = be.AppendUint32(o, uint32(nt))
	for range nt {
		var name []byte
		name, b = rdStr(b)
		t := lookup(name)
		o = be.AppendUint16(o, uint16(len(name)))
		o = append(o, name...)
		np := int(be.Uint32(b))
		b = b[4:]
		o = be.AppendUint32(o, uint32(np))
		for range np {
			pi := int(be.Uint32(b))
			n := int(be.Uint32(b[4:]))
			recs := b[8 : 8+n]
			b = b[8+n:]
			base, code := int64(-1), int16(3)
			if t != nil && pi < len(t.parts) {
				base, code = t.parts[pi].appendBatches(recs)
				if pipe {
					pp := t.parts[pi]
					pp.mu.Lock()
					pd.p, pd.upto = append(pd.p, pp), append(pd.upto, pp.size)
					pp.mu.Unlock()
				}
			}
			o = be.AppendUint32(o, uint32(pi))
			o = be.AppendUint16(o, uint16(code))
			o = be.AppendUint64(o, uint64(base))
			o = be.AppendUint64(o, ^uint64(0))
			if ver >= 5 {
				o = be.AppendUint64(o, 0)
			}
			if ver >= 8 {
				o = be.AppendUint32(o, 0)
				o = be.AppendUint16(o, 0xffff)
			}
		}
	}
	o = be.AppendUint32(o, 0)
	be.PutUint32(o, uint32(len(o)-4))
	c.out = o
	if acks == 0 {
		c.out = c.out[:0]
		return nil
	}
	if pipe {
		if c.pq == nil {
			c.pq = make(chan pend, 64)
			go c.responder()
		}
		pd.out = append([]byte(nil), o...)
		c.pq <- pd
		return nil
	}
	if *coalesce {
		c.pend = append(c.pend, o...)
		c.out = o[:0]
		return nil
	}
	return c.flushOut()
}

// fetch v4..v11 (non flexible)
func (c *conn) fetch(ver int16, corr int32, b []byte) error {
	wait := time.Duration(be.Uint32(b[4:])) * time.Millisecond
	minb := int64(int32(be.Uint32(b[8:])))
	maxb := int64(int32(be.Uint32(b[12:])))
	b = b[17:]
	if ver >= 7 {
		b = b[8:]
	}
	type tn struct {
		name []byte
		from int
	}
	var tns [8]tn
	nt := int(be.Uint32(b))
	b = b[4:]
	ts := tns[:0]
	c.fp = c.fp[:0]
	for range nt {
		var name []byte
		name, b = rdStr(b)
		t := lookup(name)
		ts = append(ts, tn{name, len(c.fp)})
		np := int(be.Uint32(b))
		b = b[4:]
		for range np {
			pi := int32(be.Uint32(b))
			b = b[4:]
			if ver >= 9 {
				b = b[4:]
			}
			off := int64(be.Uint64(b))
			b = b[8:]
			if ver >= 5 {
				b = b[8:]
			}
			pm := int64(int32(be.Uint32(b)))
			b = b[4:]
			f := fpart{part: pi, off: off, max: pm, code: 3}
			if t != nil && int(pi) < len(t.parts) {
				f.p = t.parts[pi]
				f.code = 0
			}
			c.fp = append(c.fp, f)
		}
	}
	deadline := time.Now().Add(wait)
	var tot int64
	for {
		tot = 0
		left := maxb
		for i := range c.fp {
			f := &c.fp[i]
			if f.p == nil {
				continue
			}
			f.n = 0
			m := min(f.max, left)
			if m <= 0 && tot > 0 {
				f.p.mu.Lock()
				f.hw = f.p.next
				f.p.mu.Unlock()
				continue
			}
			f.pos, f.n, f.hw, f.code = f.p.locate(f.off, m)
			tot += f.n
			left -= f.n
			if f.code != 0 {
				tot = max(tot, minb)
			}
		}
		if tot >= minb || !time.Now().Before(deadline) {
			break
		}
		// wait
		again := false
		for i := range c.fp {
			f := &c.fp[i]
			if f.p == nil {
				continue
			}
			f.p.mu.Lock()
			if f.p.next > f.off+0 && f.n == 0 {
				again = true
			}
			f.p.waiters = append(f.p.waiters, c.ch)
			f.p.mu.Unlock()
		}
		if !again {
			tm := time.NewTimer(time.Until(deadline))
			select {
			case <-c.ch:
			case <-tm.C:
			}
			tm.Stop()
		}
		// deregister
		for i := range c.fp {
			f := &c.fp[i]
			if f.p == nil {
				continue
			}
			f.p.mu.Lock()
			for k, w := range f.p.waiters {
				if w == c.ch {
					f.p.waiters = append(f.p.waiters[:k], f.p.waiters[k+1:]...)
					break
				}
			}
			f.p.mu.Unlock()
		}
		select {
		case <-c.ch:
		default:
		}
	}
	o := append(c.out[:0], 0, 0, 0, 0)
	o = be.AppendUint32(o, uint32(corr))
	o = be.AppendUint32(o, 0)
	if ver >= 7 {
		o = be.AppendUint16(o, 0)
		o = be.AppendUint32(o, 0)
	}
	o = be.AppendUint32(o, uint32(nt))
	// total size must be known first
	total := int64(len(o) - 4)
	for _, t := range ts {
		total += int64(2 + len(t.name) + 4)
	}
	per := int64(4 + 2 + 8 + 8 + 4 + 4)
	if ver >= 5 {
		per += 8
	}
	if ver >= 11 {
		per += 4
	}
	total += per*int64(len(c.fp)) + tot0(c.fp)
	be.PutUint32(o, uint32(total))
	for ti, t := range ts {
		end := len(c.fp)
		if ti+1 < len(ts) {
			end = ts[ti+1].from
		}
		o = be.AppendUint16(o, uint16(len(t.name)))
		o = append(o, t.name...)
		o = be.AppendUint32(o, uint32(end-t.from))
		for _, f := range c.fp[t.from:end] {
			o = be.AppendUint32(o, uint32(f.part))
			o = be.AppendUint16(o, uint16(f.code))
			o = be.AppendUint64(o, uint64(f.hw))
			o = be.AppendUint64(o, uint64(f.hw))
			if ver >= 5 {
				o = be.AppendUint64(o, 0)
			}
			o = be.AppendUint32(o, 0xffffffff)
			if ver >= 11 {
				o = be.AppendUint32(o, 0xffffffff)
			}
			o = be.AppendUint32(o, uint32(f.n))
			if f.n == 0 {
				continue
			}
			if *fetchHow == "pread" || f.n < 16<<10 {
				// header and data in one write
				need := len(o) + int(f.n)
				if cap(o) < need {
					no := make([]byte, len(o), need+64<<10)
					copy(no, o)
					o = no
				}
				k := len(o)
				o = o[:need]
				if _, err := f.p.f.ReadAt(o[k:], f.pos); err != nil {
					return err
				}
				continue
			}
			c.out = o
			if err := c.flushOut(); err != nil {
				return err
			}
			o = c.out
			if err := c.sendfile(f.p.f, f.pos, f.n); err != nil {
				return err
			}
		}
	}
	c.out = o
	if len(o) > 0 {
		return c.flushOut()
	}
	return nil
}

func tot0(fp []fpart) (n int64) {
	for i := range fp {
		n += fp[i].n
	}
	return
}
