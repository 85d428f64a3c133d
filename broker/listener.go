package broker

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

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

// interBrokerListener is the name of the listener by which brokers reach each
// other: inter.broker.listener.name; where that isn't set PLAINTEXT, or the first
// if none has that name.
func interBrokerListener(c *Config) (string, error) {
	name := ""
	if c.Settings != nil {
		name = strings.ToUpper(c.Settings.String("inter.broker.listener.name"))
	}
	has := func(name string) bool {
		return slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Name == name })
	}
	switch {
	case name != "" && !has(name):
		return "", fmt.Errorf("broker: inter.broker.listener.name is %s, but there is no listener of that name", name)
	case name != "":
		return name, nil
	case !has("PLAINTEXT") && len(c.Listeners) > 0:
		return c.Listeners[0].Name, nil
	}
	return "PLAINTEXT", nil
}
