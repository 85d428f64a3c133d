package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Listener is an address to listen on, and the one that clients are told.
type Listener struct {
	Name string
	// Host is "" for every address of the machine.
	Host           string
	Port           int32
	AdvertisedHost string // "" where the user gave none and Host is "": the machine's name
	AdvertisedPort int32
}

// Listeners reads listeners, advertised.listeners and
// listener.security.protocol.map with Kafka's meaning. The listeners of
// controller.listener.names are skipped.
func (b *Broker) Listeners() ([]Listener, error) {
	protocols, err := b.protocols()
	if err != nil {
		return nil, err
	}
	skip := SplitList(b.String("controller.listener.names"))
	listen, err := parseListeners("listeners", b.String("listeners"))
	if err != nil {
		return nil, err
	}
	adv, err := parseListeners("advertised.listeners", b.String("advertised.listeners"))
	if err != nil {
		return nil, err
	}
	var out []Listener
	for _, l := range listen {
		if slices.Contains(skip, l.Name) {
			continue
		}
		p, ok := protocols[l.Name]
		if !ok {
			return nil, fmt.Errorf("config: listener %s has no protocol: add %s:PLAINTEXT to listener.security.protocol.map", l.Name, l.Name)
		}
		if p != "PLAINTEXT" {
			return nil, fmt.Errorf("config: listener %s is mapped to %s, but only PLAINTEXT is there yet, and to go on without would leave it open", l.Name, p)
		}
		l.AdvertisedHost, l.AdvertisedPort = l.Host, l.Port
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("config: listeners names no listener for clients: %q", b.String("listeners"))
	}
	for _, a := range adv {
		if slices.Contains(skip, a.Name) {
			continue
		}
		i := slices.IndexFunc(out, func(l Listener) bool { return l.Name == a.Name })
		if i < 0 {
			return nil, fmt.Errorf("config: advertised.listeners names %s, which listeners does not", a.Name)
		}
		if a.Host == "" || a.Host == "0.0.0.0" || a.Host == "::" {
			return nil, fmt.Errorf("config: advertised.listeners: clients can't connect to %q; name the address by which they reach this machine", a.Host)
		}
		out[i].AdvertisedHost, out[i].AdvertisedPort = a.Host, a.Port
	}
	for i := range out {
		if h := out[i].AdvertisedHost; h == "0.0.0.0" || h == "::" {
			out[i].AdvertisedHost = ""
		}
	}
	return out, nil
}

func (b *Broker) protocols() (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range SplitList(b.String("listener.security.protocol.map")) {
		name, p, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, fmt.Errorf("config: listener.security.protocol.map: %q is not NAME:PROTOCOL", pair)
		}
		out[strings.ToUpper(name)] = strings.ToUpper(p)
	}
	if _, ok := out["PLAINTEXT"]; !ok && !b.IsSet("listener.security.protocol.map") {
		out["PLAINTEXT"] = "PLAINTEXT"
	}
	return out, nil
}

func parseListeners(key, value string) ([]Listener, error) {
	var out []Listener
	for _, s := range SplitList(value) {
		name, addr, ok := strings.Cut(s, "://")
		if !ok || name == "" {
			return nil, fmt.Errorf("config: %s: %q is not NAME://host:port", key, s)
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("config: %s: %q is not NAME://host:port", key, s)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("config: %s: port %q in %q", key, port, s)
		}
		l := Listener{Name: strings.ToUpper(name), Host: host, Port: int32(n)}
		for _, o := range out {
			if o.Name == l.Name {
				return nil, fmt.Errorf("config: %s names %s twice", key, l.Name)
			}
			if o.Port == l.Port && l.Port != 0 && key == "listeners" && o.Host == l.Host {
				return nil, fmt.Errorf("config: %s uses port %d twice", key, l.Port)
			}
		}
		out = append(out, l)
	}
	return out, nil
}
