package kudos.client;

import java.util.Map;
import org.apache.kafka.common.serialization.Serializer;

/** Encodes the key of an event's record; it reads the setting kudos.user.buckets. */
public final class LikeKeySerializer implements Serializer<LikeEvent> {
  private UserBuckets buckets = new UserBuckets("");

  @Override
  public void configure(Map<String, ?> configs, boolean isKey) {
    buckets = UserBuckets.of(configs);
  }

  @Override
  public byte[] serialize(String topic, LikeEvent event) {
    return event == null ? null : buckets.key(event.postId(), event.userId());
  }
}
