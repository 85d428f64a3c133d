import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Reads a whole topic and prints, for each key, the number of its records and a digest of their values in order. */
public class ReadAll {
  public static void main(String[] a) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", a[0]);
    p.put("key.deserializer", StringDeserializer.class.getName());
    p.put("value.deserializer", ByteArrayDeserializer.class.getName());
    p.put("fetch.max.bytes", "52428800");
    p.put("max.partition.fetch.bytes", "4194304");
    p.put("auto.offset.reset", "none");
    Map<String, MessageDigest> sums = new TreeMap<>();
    Map<String, Long> counts = new HashMap<>();
    try (KafkaConsumer<String, byte[]> c = new KafkaConsumer<>(p)) {
      List<TopicPartition> tps = c.partitionsFor(a[1]).stream()
          .map(i -> new TopicPartition(i.topic(), i.partition())).collect(Collectors.toList());
      c.assign(tps);
      c.seekToBeginning(tps);
      Map<TopicPartition, Long> end = c.endOffsets(tps);
      long[] next = new long[tps.size()];
      while (tps.stream().anyMatch(tp -> c.position(tp) < end.get(tp))) {
        for (ConsumerRecord<String, byte[]> r : c.poll(Duration.ofMillis(500))) {
          if (r.offset() < next[r.partition()]) throw new IllegalStateException("offset " + r.offset() + " came twice or out of order");
          next[r.partition()] = r.offset() + 1;
          MessageDigest d = sums.get(r.key());
          if (d == null) sums.put(r.key(), d = MessageDigest.getInstance("SHA-256"));
          byte[] v = r.value();
          d.update(new byte[] {(byte) (v.length >>> 24), (byte) (v.length >>> 16), (byte) (v.length >>> 8), (byte) v.length});
          d.update(v);
          counts.merge(r.key(), 1L, Long::sum);
        }
      }
    }
    StringBuilder out = new StringBuilder();
    for (Map.Entry<String, MessageDigest> e : sums.entrySet())
      out.append(e.getKey()).append('\t').append(counts.get(e.getKey())).append('\t').append(HexFormat.of().formatHex(e.getValue().digest())).append('\n');
    System.out.print(out);
  }
}
