// Package config is the registry of every configuration key: Kafka's and ours,
// with types, defaults, validators, who may change them at run time, and what a
// topic key is called on a broker. It reads .properties files, KAFKA_* variables
// and --set pairs, resolves them in Kafka's order of precedence, and refuses what
// we can't honour. It is pure: it opens no file and keeps no state.
//
// # Tables
//
// keys.tsv holds Kafka's keys, ours.tsv our own, one a line, tab-separated:
//
//	scope  name  type  default  valid  update  secret  synonyms  stance
//
//	scope     broker or topic
//	type      boolean int long short double string list class password
//	default   "null" for none
//	valid     [lo,...] [lo,...,hi] or [word,word]; empty for anything
//	update    static; cluster (dynamic, for all or one broker); broker (dynamic,
//	          for one broker); topic
//	secret    "secret" if never shown
//	synonyms  the broker keys that a topic key falls back to, in order
//	stance    must should report: ours for real or shown; accept-ignore,
//	          accept-map: taken with a warning or mapped; refuse: stops the
//	          start; unknown: of another world (KRaft, share groups); ours
//
// # Precedence
//
// For a broker key, highest first (KIP-226):
//
//	dynamic of this broker > dynamic of all brokers > --set > environment > file > default
//
// For a topic key: the topic's own, then its synonyms resolved as broker keys,
// then the default.
//
// # While the broker runs
//
// Only what takes effect at once can be changed: update is static for what Kafka
// can change and we can't (listeners). Exceptions are keys that tools set and
// that mean nothing here, such as numbers of threads (dynamic.go, README).
//
// # Deviations
//
// Our defaults differ from Kafka's in queued.max.request.bytes (256 MiB instead
// of no bound), socket.send.buffer.bytes and socket.receive.buffer.bytes (-1:
// the system's), and remote.storage.enable of new topics (true if an archive is
// configured). segment.bytes is accepted from 1 KiB on.
package config
