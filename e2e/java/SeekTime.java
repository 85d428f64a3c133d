import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Seeks partition 0 of a topic to a time in milliseconds and prints the value of the first record there. */
public class SeekTime {
  public static void main(String[] a) throws Exception {
    Properties p = new Properties();
    p.put("bootstrap.servers", a[0]);
    p.put("key.deserializer", StringDeserializer.class.getName());
    p.put("value.deserializer", StringDeserializer.class.getName());
    p.put("auto.offset.reset", "none");
    TopicPartition tp = new TopicPartition(a[1], 0);
    try (KafkaConsumer<String, String> c = new KafkaConsumer<>(p)) {
      c.assign(List.of(tp));
      c.seek(tp, c.offsetsForTimes(Map.of(tp, Long.parseLong(a[2]))).get(tp).offset());
      for (;;)
        for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(500))) {
          System.out.println(r.value());
          return;
        }
    }
  }
}
