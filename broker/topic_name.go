package broker

import (
	"fmt"
	"strings"

	"firn/broker/config"
)

// Kafka's internal topics. Clients may read them, and Metadata marks them.
const (
	offsetsTopic     = "__consumer_offsets"
	transactionTopic = "__transaction_state"
)

// isInternal says whether name is one of the broker's own topics.
func isInternal(name string) bool {
	return name == offsetsTopic || name == transactionTopic
}

// neverArchived: an internal topic, or one whose name is too long for the archive.
func neverArchived(name string) bool {
	return isInternal(name) || len(name) > config.MaxArchivedName
}

// maxTopicName leaves room for "-<partition>" and Kafka's suffixes in a file name.
const maxTopicName = 249

// checkTopicName says what is wrong with a topic's name, "" for nothing. Every
// path, node and object key made from a topic begins here: a name that passes
// can be part of any of them.
func checkTopicName(name string) string {
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == "." || name == "..":
		return "Topic name is invalid: '.' or '..' is not allowed"
	case len(name) > maxTopicName:
		return fmt.Sprintf("Topic name is invalid: the length of '%.40s…' is longer than the max allowed length %d", name, maxTopicName)
	}
	for i := range len(name) {
		if !topicNameByte(name[i]) {
			return fmt.Sprintf("Topic name is invalid: %q contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return ""
}

func topicNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// collisionKey is the form under which two topics' metrics would be the same:
// Kafka allows only one of "a.b" and "a_b".
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// mayCollide says whether name has a character that collisionKey folds.
func mayCollide(name string) bool { return strings.ContainsAny(name, "._") }
