package meta

import (
	"context"
	"net"
	"strconv"
	"strings"
)

// brokerJSON is the value of a broker's ephemeral node: Kafka's version 5, with
// the broker epoch and the id of its data directory.
type brokerJSON struct {
	Version     int               `json:"version"`
	Protocols   map[string]string `json:"listener_security_protocol_map"`
	Endpoints   []string          `json:"endpoints"` // NAME://host:port
	Host        string            `json:"host"`
	Port        int32             `json:"port"`
	JMXPort     int32             `json:"jmx_port"`
	Rack        string            `json:"rack,omitempty"`
	BrokerEpoch int64             `json:"broker_epoch"`
	StorageID   string            `json:"storage_id"`
}

const brokerVersion = 5

// encodeBroker is the value of b's node.
func encodeBroker(b Broker) []byte {
	j := brokerJSON{
		Version:     brokerVersion,
		Protocols:   make(map[string]string),
		Endpoints:   []string{},
		Port:        -1,
		JMXPort:     -1,
		Rack:        b.Rack,
		BrokerEpoch: b.Epoch,
		StorageID:   b.StorageID,
	}
	for _, e := range b.Endpoints {
		j.Protocols[e.Listener] = e.Protocol
		j.Endpoints = append(j.Endpoints, e.Listener+"://"+net.JoinHostPort(e.Host, itoa(e.Port)))
		if e.Protocol == "PLAINTEXT" && j.Port < 0 {
			j.Host, j.Port = e.Host, e.Port
		}
	}
	return encode(j)
}

// decodeBroker reads the node of broker id.
func decodeBroker(id int32, n Node) (Broker, error) {
	what := "broker " + itoa(id)
	var j brokerJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Broker{}, err
	}
	b := Broker{ID: id, Epoch: j.BrokerEpoch, Rack: j.Rack, StorageID: j.StorageID}
	for _, s := range j.Endpoints {
		name, address, ok := strings.Cut(s, "://")
		host, port, err := net.SplitHostPort(address)
		number, perr := strconv.ParseUint(port, 10, 16)
		protocol := j.Protocols[name]
		if !ok || name == "" || err != nil || perr != nil || protocol == "" {
			return Broker{}, malformed(what, "endpoint %.200q", s)
		}
		b.Endpoints = append(b.Endpoints, Endpoint{Listener: name, Protocol: protocol, Host: host, Port: int32(number)})
	}
	return b, nil
}

// LoadBroker reads a registered broker; ErrNotFound if it isn't.
func LoadBroker(ctx context.Context, s Store, id int32) (Broker, error) {
	n, err := s.Get(ctx, BrokerPath(id))
	if err != nil {
		return Broker{}, err
	}
	return decodeBroker(id, n)
}
