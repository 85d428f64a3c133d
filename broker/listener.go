package broker

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"firn/replication/meta"
)

// Listener is an address to serve the Kafka protocol on.
type Listener struct {
	Name string // PLAINTEXT, INTERNAL, …
	// Host and Port are where to listen; Host "" is every address, Port 0 any
	// free one.
	Host string
	Port int32
	// AdvertisedHost and AdvertisedPort are what clients are told; "" and 0:
	// Host, or the machine's name, and the port that is listened on.
	AdvertisedHost string
	AdvertisedPort int32
	// Open, if not nil, is listened on instead of Host and Port.
	Open net.Listener
}

// listener is an open Listener.
type listener struct {
	net.Listener
	Name     string
	endpoint meta.Endpoint
}

func listen(l Listener) (*listener, error) {
	nl := l.Open
	if nl == nil {
		var err error
		nl, err = net.Listen("tcp", net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
		if err != nil {
			return nil, fmt.Errorf("broker: listener %s: %w", l.Name, err)
		}
	}
	e := meta.Endpoint{Listener: l.Name, Protocol: "PLAINTEXT", Host: l.AdvertisedHost, Port: l.AdvertisedPort}
	if e.Host == "" {
		e.Host = l.Host
	}
	if e.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		e.Host = name
	}
	if a, ok := nl.Addr().(*net.TCPAddr); ok && e.Port == 0 {
		e.Port = int32(a.Port)
	}
	return &listener{Listener: nl, Name: l.Name, endpoint: e}, nil
}
