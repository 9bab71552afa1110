package kudos.bench.streams;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import java.io.IOException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * The fields of a {@code kudos.v1.LikeEvent} that counting needs. Ids are unsigned.
 *
 * @param postId 0: it is in the record's key
 * @param liked  the action is LIKE, not one that withdraws a like
 */
record LikeEvent(long postId, long userId, boolean liked) {
    // The fields and one value of schema/proto/kudos/v1/likes.proto.
    private static final int POST_ID = 1;
    private static final int USER_ID = 2;
    private static final int ACTION = 3;
    private static final int LIKE = 1;

    /**
     * Reads the three fields directly from the bytes: a generated message would allocate an object with all fields, and
     * the region, for each event.
     */
    static final class Decoder implements Deserializer<LikeEvent> {
        @Override
        public LikeEvent deserialize(String topic, byte[] value) {
            if (value == null) {
                throw new SerializationException("event has no value");
            }
            try {
                return decode(value);
            } catch (IOException e) {
                throw new SerializationException("event is not Protobuf: " + e.getMessage(), e);
            }
        }

        private static LikeEvent decode(byte[] value) throws IOException {
            CodedInputStream in = CodedInputStream.newInstance(value);
            long post = 0;
            long user = 0;
            int action = 0;
            for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
                if (WireFormat.getTagWireType(tag) != WireFormat.WIRETYPE_VARINT) {
                    in.skipField(tag);
                    continue;
                }
                long v = in.readUInt64();
                switch (WireFormat.getTagFieldNumber(tag)) {
                    case POST_ID -> post = v;
                    case USER_ID -> user = v;
                    case ACTION -> action = (int) v;
                    default -> { }
                }
            }
            if (user == 0 || action == 0) {
                throw new SerializationException("event has no user or no action");
            }
            return new LikeEvent(post, user, action == LIKE);
        }
    }
}
