package replication

// Partition is this broker's replica of a partition.
type Partition struct {
	log Log
}
