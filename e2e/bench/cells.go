package main

import (
	"fmt"
	"slices"
	"strings"
)

// cell is one measurement of the suite.
type cell struct {
	name string
	args []string
	key  string // the figure to compare
	more []string
	big  bool // higher is better
}

// goesOn: the cell reads what the one before it wrote.
func (c *cell) goesOn() bool { return strings.HasPrefix(c.name, "  ") }

// allCells are the cells of the groups that which names, by commas. cluster needs
// three brokers and -rf 3, so "all" is without it.
func allCells(which string) (cells []cell) {
	groups := strings.Split(which, ",")
	for _, g := range []struct {
		name  string
		cells func() []cell
	}{
		{"raw", rawCells},
		{"kgo", kgoCells},
		{"e2e", e2eCells},
		{"cluster", clusterCells},
		{"compressed", compressedCells},
		{"fsync", fsyncCells},
	} {
		if slices.Contains(groups, g.name) || which == "all" && g.name != "cluster" {
			cells = append(cells, g.cells()...)
		}
	}
	return cells
}

func rawCells() (cells []cell) {
	for _, c := range []struct{ batch, clients, parts, per, size int }{{4096, 4, 4, 1, 1024}, {16384, 1, 1, 1, 1024}, {16384, 4, 4, 1, 1024}, {65536, 4, 4, 1, 1024}, {1000000, 4, 4, 1, 1024}, {16384, 4, 32, 8, 1024}} {
		n := "600000000"
		if c.batch <= 4096 {
			n = "150000000"
		}
		cells = append(cells, cell{fmt.Sprintf("raw-produce batch=%d conns=%d parts=%d per-req=%d", c.batch, c.clients, c.parts, c.per),
			[]string{"raw-produce", "-create", "-size", fmt.Sprint(c.size), "-batch", fmt.Sprint(c.batch), "-clients", fmt.Sprint(c.clients), "-partitions", fmt.Sprint(c.parts), "-parts-per-request", fmt.Sprint(c.per), "-bytes", n}, "MB_s", []string{"req_s", "ack_p50_ms", "ack_p99_ms", "broker_cpu_s_per_GB"}, true})
		cells = append(cells, cell{fmt.Sprintf("  raw-fetch of that (1 MiB a partition), conns=%d", c.clients),
			[]string{"raw-fetch", "-delete", "-clients", fmt.Sprint(c.clients), "-partitions", fmt.Sprint(c.parts)}, "MB_s", []string{"req_s", "fetch_p50_ms", "fetch_p99_ms", "broker_cpu_s_per_GB"}, true})
	}
	return cells
}

func kgoCells() (cells []cell) {
	for _, size := range []int{100, 1024, 10240} {
		for _, parts := range []int{1, 8} {
			for _, acks := range []string{"1", "all"} {
				if acks == "1" && size != 1024 {
					continue
				}
				cells = append(cells, cell{fmt.Sprintf("produce size=%d parts=%d acks=%s", size, parts, acks),
					[]string{"produce", "-create", "-size", fmt.Sprint(size), "-partitions", fmt.Sprint(parts), "-acks", acks, "-bytes", produceBytes(size)}, "MB_s", []string{"rec_s", "ack_p50_ms", "ack_p99_ms", "broker_cpu_s_per_GB", "broker_hwm_MB"}, true})
				cells = append(cells, cell{"  consume of that",
					[]string{"consume", "-delete", "-size", fmt.Sprint(size), "-partitions", fmt.Sprint(parts)}, "MB_s", []string{"rec_s", "broker_cpu_s_per_GB"}, true})
			}
		}
	}
	return cells
}

func e2eCells() (cells []cell) {
	for _, rate := range []int{5000, 20000} {
		for _, parts := range []int{1, 8} {
			cells = append(cells, cell{fmt.Sprintf("e2e rate=%d parts=%d size=1024 acks=all", rate, parts),
				[]string{"e2e", "-create", "-delete", "-size", "1024", "-rate", fmt.Sprint(rate), "-partitions", fmt.Sprint(parts), "-max-seconds", "10"}, "e2e_p99_ms", []string{"e2e_p50_ms", "e2e_p999_ms", "ack_p50_ms", "ack_p99_ms", "broker_cpu_us_per_rec", "lost"}, false})
		}
	}
	return cells
}

func clusterCells() (cells []cell) {
	for _, conns := range []int{1, 4} {
		cells = append(cells, cell{fmt.Sprintf("raw-produce replicas=3 acks=all batch=16384 conns=%d parts=%d", conns, conns),
			[]string{"raw-produce", "-create", "-delete", "-topic-config", "min.insync.replicas=2", "-size", "1024", "-batch", "16384", "-clients", fmt.Sprint(conns), "-partitions", fmt.Sprint(conns), "-bytes", "300000000"},
			"MB_s", []string{"req_s", "ack_p50_ms", "ack_p99_ms", "broker_cpu_s_per_GB"}, true})
	}
	cells = append(cells, cell{"e2e replicas=3 rate=5000 parts=1 size=1024 acks=all",
		[]string{"e2e", "-create", "-delete", "-topic-config", "min.insync.replicas=2", "-size", "1024", "-rate", "5000", "-partitions", "1", "-max-seconds", "10"},
		"e2e_p99_ms", []string{"e2e_p50_ms", "e2e_p999_ms", "ack_p50_ms", "ack_p99_ms", "broker_cpu_us_per_rec", "lost"}, false})
	return cells
}

func compressedCells() (cells []cell) {
	for _, codec := range []string{"lz4", "zstd", "gzip"} {
		cells = append(cells, cell{"produce text size=1024 parts=1 compression=" + codec,
			[]string{"produce", "-create", "-delete", "-size", "1024", "-partitions", "1", "-payload", "text", "-compression", codec, "-bytes", "600000000"},
			"broker_cpu_s_per_GB", []string{"rec_s", "MB_s"}, false})
	}
	return cells
}

func fsyncCells() (cells []cell) {
	for _, batch := range []int{16384, 65536} {
		cells = append(cells, cell{fmt.Sprintf("raw-produce flush.messages=1 batch=%d conns=4 parts=4", batch),
			[]string{"raw-produce", "-create", "-delete", "-size", "1024", "-batch", fmt.Sprint(batch), "-clients", "4", "-partitions", "4", "-bytes", "300000000", "-topic-config", "flush.messages=1"},
			"MB_s", []string{"req_s", "ack_p50_ms", "ack_p99_ms", "broker_cpu_s_per_GB"}, true})
	}
	return cells
}

// produceBytes is how many bytes a produce run takes.
func produceBytes(size int) string {
	switch size {
	case 100:
		return "100000000"
	case 1024:
		return "600000000"
	}
	return "800000000"
}
