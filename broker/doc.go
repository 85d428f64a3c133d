// Package broker is the Kafka server: listeners, connections, one file per API.
package broker
