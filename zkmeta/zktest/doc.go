// Package zktest starts ZooKeeper for tests: one node or an ensemble, each node a
// process of its own on loopback, which a test may kill, pause and bring back. It
// is imported by tests alone, and knows nothing of what is kept in ZooKeeper.
//
// The servers are Debian's (libzookeeper-java), run by plain java. A tick is
// 500 ms, so that a session may be as short as a second; nothing is synced, since
// no test takes the machine's power away. Where java or the jars are missing the
// test is skipped, or fails under FIRN_REQUIRE=all.
package zktest
