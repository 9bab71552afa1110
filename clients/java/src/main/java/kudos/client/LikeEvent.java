package kudos.client;

import java.util.Objects;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * What a user wants for a post. Ids are unsigned: use {@link Long#parseUnsignedLong}. A timeMs of 0 becomes the current
 * time. To send an event again, send the same object: a later time could override what the user did in between. The
 * region is ISO 3166-1 or 3166-2, such as DE or US-CA, or empty.
 */
public record LikeEvent(long postId, long userId, Action action, long timeMs, String region) {
  /** UNLIKE withdraws a like or dislike. */
  public enum Action { LIKE, UNLIKE, DISLIKE }

  public LikeEvent {
    if (postId == 0 || userId == 0) {
      throw new IllegalArgumentException((postId == 0 ? "postId" : "userId") + ": 0 is not an id");
    }
    if (timeMs < 0) {
      throw new IllegalArgumentException("timeMs: " + timeMs + " is negative");
    }
    Objects.requireNonNull(action, "action");
    timeMs = timeMs == 0 ? System.currentTimeMillis() : timeMs;
    region = Objects.requireNonNullElse(region, "");
  }

  /** An event at the current time, of an unknown region. */
  public LikeEvent(long postId, long userId, Action action) {
    this(postId, userId, action, 0, "");
  }

  /** The record of this event, for a producer with LikeKeySerializer and LikeEventSerializer. */
  public ProducerRecord<LikeEvent, LikeEvent> record(String topic) {
    return new ProducerRecord<>(topic, this, this);
  }

  @Override
  public String toString() {
    return action + " of post " + Long.toUnsignedString(postId) + " by user " + Long.toUnsignedString(userId)
        + " at " + timeMs + " ms" + (region.isEmpty() ? "" : " in " + region);
  }
}
