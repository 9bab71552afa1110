package kudos.bench.streams;

import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * The count of a post, and the position in the source partition that it reflects: once the transaction that wrote this
 * is committed, the counts include every event of the partition below {@code next}.
 */
record CountAt(long count, long next) {
    /** The key of a partition's progress: no post has this id. */
    static final long PROGRESS = 0;

    static Serde<CountAt> serde() {
        return Serdes.serdeFrom(
                (topic, value) -> value == null ? null : ByteBuffer.allocate(16).putLong(value.count).putLong(value.next).array(),
                (topic, bytes) -> bytes == null ? null : decode(bytes));
    }

    static CountAt decode(byte[] bytes) {
        ByteBuffer b = ByteBuffer.wrap(bytes);
        return new CountAt(b.getLong(), b.getLong());
    }
}
