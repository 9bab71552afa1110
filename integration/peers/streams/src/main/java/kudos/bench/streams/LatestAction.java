package kudos.bench.streams;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Keeps the latest action of each (post, user) and the count of each post. The events of a partition are in order of
 * time, so the last in the log is the latest.
 *
 * <p>It forwards nothing: the changelog of the count store is the output. The store's cache holds the newest count of
 * each post and writes it once per commit, in the transaction that also has the pairs and the consumed offset.
 *
 * <p>Each event writes to the count store, so that each transaction records the offset up to which it counts: an event
 * that changes a count writes the count and the offset, any other only the offset.
 */
final class LatestAction implements Processor<byte[], LikeEvent, Void, Void> {
    static final String PAIRS = "pairs";
    static final String COUNTS = "counts";

    // Values of the pair store. "Not liked" is also stored, as the latest action.
    private static final byte[] NOT_LIKED = {0};
    private static final byte[] LIKED = {1};

    private ProcessorContext<Void, Void> context;
    private KeyValueStore<byte[], byte[]> pairs;
    private KeyValueStore<Long, CountAt> counts;

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        this.context = context;
        pairs = context.getStateStore(PAIRS);
        counts = context.getStateStore(COUNTS);
    }

    @Override
    public void process(Record<byte[], LikeEvent> record) {
        LikeEvent event = record.value();
        long next = context.recordMetadata().orElseThrow().offset() + 1;
        long post = event.postId() != 0 ? event.postId() : postOf(record.key());
        byte[] pair = ByteBuffer.allocate(16).putLong(post).putLong(event.userId()).array();
        byte[] before = pairs.get(pair);
        boolean liked = before != null && before[0] == LIKED[0];
        if (before == null || liked != event.liked()) {
            pairs.put(pair, event.liked() ? LIKED : NOT_LIKED);
        }
        if (liked == event.liked()) {
            counts.put(CountAt.PROGRESS, new CountAt(0, next));
            return;
        }
        CountAt count = counts.get(post);
        counts.put(post, new CountAt((count == null ? 0 : count.count()) + (event.liked() ? 1 : -1), next));
    }

    private static long postOf(byte[] key) {
        return Long.parseUnsignedLong(new String(key, StandardCharsets.US_ASCII));
    }
}
