package meta

import (
	"context"
	"errors"
)

type configJSON struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// encodeConfig is the value of an entity's configs.
func encodeConfig(values map[string]string) []byte {
	if values == nil {
		values = map[string]string{}
	}
	return encode(configJSON{Version: 1, Config: values})
}

// decodeConfig reads an entity's configs.
func decodeConfig(n Node) (Config, error) {
	var j configJSON
	if err := decode("config", n.Value, &j); err != nil {
		return Config{}, err
	}
	return Config{Values: j.Config, Version: n.Version, Rev: n.Rev}, nil
}

// LoadConfig reads an entity's configs; none, Missing, if it has none.
func LoadConfig(ctx context.Context, s Store, kind ConfigKind, entity string) (Config, error) {
	n, err := s.Get(ctx, ConfigPath(kind, entity))
	if errors.Is(err, ErrNotFound) {
		return Config{Version: Missing}, nil
	}
	if err != nil {
		return Config{}, err
	}
	return decodeConfig(n)
}

// SetConfig writes an entity's configs over the version that c names.
func SetConfig(kind ConfigKind, entity string, c Config) Write {
	w := Write{Ops: []Op{createOrSet(ConfigPath(kind, entity), encodeConfig(c.Values), c.Version)}}
	if kind == TopicConfig {
		w.Note.Topics = []string{entity}
	} else {
		w.Note.Configs = []string{string(kind) + "/" + entity}
	}
	return w
}
