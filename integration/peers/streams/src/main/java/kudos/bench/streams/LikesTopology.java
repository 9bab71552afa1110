package kudos.bench.streams;

import java.util.Map;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.state.Stores;

/**
 * One sub-topology: {@code likes} → {@link LatestAction} with its two stores. The topic is keyed by post and partitioned
 * by that key already, so nothing is repartitioned.
 */
final class LikesTopology {
    static final String LIKES = "likes";

    private LikesTopology() { }

    static Topology build() {
        // Both stores have changelog topics, from which they can be restored on another machine. A pair is rarely changed
        // twice within a commit interval, so a cache would only add cost; a popular post's count changes at each event.
        var pairs = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(LatestAction.PAIRS), Serdes.ByteArray(), Serdes.ByteArray())
                .withLoggingEnabled(Map.of())
                .withCachingDisabled();
        var counts = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(LatestAction.COUNTS), Serdes.Long(), CountAt.serde())
                .withLoggingEnabled(Map.of())
                .withCachingEnabled();
        return new Topology()
                .addSource("likes", new ByteArrayDeserializer(), new LikeEvent.Decoder(), LIKES)
                .addProcessor("latest-action", LatestAction::new, "likes")
                .addStateStore(pairs, "latest-action")
                .addStateStore(counts, "latest-action");
    }
}
