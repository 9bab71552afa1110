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
        // Both stores are topics, too, from which they are made again on another machine. Pairs are rarely touched twice
        // within a commit interval, so a cache would only cost; a popular post's count is, at each event.
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
