package kudos.client;

import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;

/**
 * Chooses the partition that owns an event's reaction, whatever the record's key: murmur2 of the key that the event
 * should have, as Kafka's default does. It reads the setting kudos.user.buckets.
 *
 * <p>Values that are not a {@link LikeEvent} go by their key. A record without either is rejected, because Kafka's
 * default would put it into any partition.
 */
public final class LikePartitioner implements Partitioner {
  private UserBuckets buckets = new UserBuckets("");

  @Override
  public void configure(Map<String, ?> configs) {
    buckets = UserBuckets.of(configs);
  }

  @Override
  public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
    byte[] owner = value instanceof LikeEvent event ? buckets.key(event.postId(), event.userId()) : keyBytes;
    if (owner == null) {
      throw new IllegalArgumentException(
          "choose partition of " + topic + ": the record has no key; set it to the post id");
    }
    return Partitions.partitionOf(owner, cluster.partitionsForTopic(topic).size());
  }

  @Override
  public void close() {}
}
