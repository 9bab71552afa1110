package kudos.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serializer;

/** Encodes record values as Protobuf, message kudos.v1.LikeEvent. */
public final class LikeEventSerializer implements Serializer<LikeEvent> {
  private static final int MAX_BYTES = 4 << 10;

  @Override
  public byte[] serialize(String topic, LikeEvent event) {
    var out = new ByteArrayOutputStream(64);
    long[] numbers = {event.postId(), event.userId(), event.action().ordinal() + 1, event.timeMs()};
    for (int i = 0; i < numbers.length; i++) {
      varint(out, (i + 1) << 3);
      varint(out, numbers[i]);
    }
    if (!event.region().isEmpty()) {
      byte[] region = event.region().getBytes(UTF_8);
      varint(out, 5 << 3 | 2);
      varint(out, region.length);
      out.writeBytes(region);
    }
    if (out.size() > MAX_BYTES) {
      throw new SerializationException(
          "encode event: " + out.size() + " bytes, the limit is " + MAX_BYTES + ": shorten the region");
    }
    return out.toByteArray();
  }

  private static void varint(ByteArrayOutputStream out, long unsigned) {
    for (; (unsigned & ~0x7f) != 0; unsigned >>>= 7) {
      out.write((int) (unsigned & 0x7f | 0x80));
    }
    out.write((int) unsigned);
  }
}
