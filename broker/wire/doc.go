// Package wire reads and writes the frames of the Kafka protocol: their length,
// their headers, and by hand, for their number and size, Produce and Fetch.
// It knows no topics, no logs and no sockets; kmsg has all other messages.
//
//	frame            int32 length of what follows
//	request header   int16 key, int16 version, int32 correlation id,
//	                 nullable string client id (v1), tags (v2: "flexible" versions)
//	response header  int32 correlation id (v0), tags (v1: flexible, but for ApiVersions)
//
// Everything read here comes from strangers. No length is believed before the
// bytes it counts are there: a [Reader] refuses what doesn't fit, and a
// [FrameReader] takes memory as bytes arrive, never by the announced length. What
// a parser returns points into the frame, so it lives as long as the frame does:
// until the next call of [FrameReader.Next].
package wire
