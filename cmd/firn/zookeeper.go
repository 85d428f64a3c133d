package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"firn/broker/config"
	"firn/replication/meta"
	"firn/zkmeta"
)

// openZooKeeper opens the metadata of a cluster. fresh: it has no cluster id yet.
func openZooKeeper(ctx context.Context, c *config.Broker, log *slog.Logger) (store *zkmeta.Store, fresh bool, err error) {
	if !c.IsSet("node.id") || c.Int("node.id") < 0 {
		return nil, false, errors.New("config: zookeeper.connect is set, so this broker is one of several: give it a number of its own with broker.id")
	}
	cfg, err := zookeeperConfig(c)
	if err != nil {
		return nil, false, err
	}
	cfg.Log = log
	if store, err = zkmeta.Open(ctx, cfg); err != nil {
		return nil, false, err
	}
	_, err = meta.LoadClusterID(ctx, store)
	if fresh = errors.Is(err, meta.ErrNotFound); fresh {
		err = nil
	}
	if err != nil {
		return nil, false, errors.Join(err, store.Close())
	}
	return store, fresh, nil
}

// nettySocket is the only zookeeper.clientCnxnSocket that does TLS in Kafka, which
// refuses to start with TLS and without it.
const nettySocket = "org.apache.zookeeper.ClientCnxnSocketNetty"

// zookeeperConfig is what Kafka's keys say about ZooKeeper.
func zookeeperConfig(c *config.Broker) (zkmeta.Config, error) {
	cfg := zkmeta.Config{
		Connect:        c.String("zookeeper.connect"),
		SessionTimeout: c.Millis("zookeeper.session.timeout.ms"),
		MaxInFlight:    int(c.Int("zookeeper.max.in.flight.requests")),
		SetACL:         c.Bool("zookeeper.set.acl"),
	}
	if c.String("zookeeper.connection.timeout.ms") != "" {
		cfg.ConnectTimeout = c.Millis("zookeeper.connection.timeout.ms")
	}
	var err error
	if cfg.Digest, err = digest(c); err != nil {
		return cfg, err
	}
	if !c.Bool("zookeeper.ssl.client.enable") {
		for _, key := range []string{"zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"} {
			if c.String(key) != "" {
				return cfg, fmt.Errorf("config: %s is set, but zookeeper.ssl.client.enable is not true: the connection would be a plain one", key)
			}
		}
		return cfg, nil
	}
	if socket := c.String("zookeeper.clientCnxnSocket"); socket != "" && socket != nettySocket {
		return cfg, fmt.Errorf("config: zookeeper.ssl.client.enable=true needs zookeeper.clientCnxnSocket=%s, as in Kafka", nettySocket)
	}
	for _, key := range []string{"zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"} {
		if c.Bool(key) {
			return cfg, fmt.Errorf("config: %s=true asks for a check of revoked certificates that is not there, and to go on without it would be weaker than asked for", key)
		}
	}
	cfg.TLS, err = zkmeta.LoadTLS(zkmeta.TLSFiles{
		Truststore: c.String("zookeeper.ssl.truststore.location"), TruststoreType: c.String("zookeeper.ssl.truststore.type"),
		Keystore: c.String("zookeeper.ssl.keystore.location"), KeystoreType: c.String("zookeeper.ssl.keystore.type"),
		AnyHost:  c.String("zookeeper.ssl.endpoint.identification.algorithm") == "",
		Protocol: c.String("zookeeper.ssl.protocol"),
	})
	return cfg, err
}

// digest is the user and password of ZooKeeper's digest scheme.
func digest(c *config.Broker) (string, error) {
	if user := c.String("zookeeper.digest.auth"); user != "" {
		return user, nil
	}
	path := c.String("zookeeper.digest.auth.file")
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("config: zookeeper.digest.auth.file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
