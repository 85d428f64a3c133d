// Package segment keeps the log of one partition in files, byte for byte as
// Apache Kafka lays them out. It knows no network, no cluster and no object store.
package segment
