// Package harness starts what end-to-end tests need as real processes on
// loopback: firn itself (built with failpoints), kcat, Apache Kafka's tools and
// its Java client. Every process ends with its test. A tool that is missing
// skips the test with the reason, or fails it under FIRN_REQUIRE=all.
package harness
