package kudos.bench.streams;

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;

/** All settings of Kafka Streams and of the sink's consumer. README.md has the effect of each. */
final class Settings {
    /** Names the consumer group, the transactions, the changelogs and the state directory. */
    static final String APPLICATION = "kudos-streams";

    private Settings() { }

    static Properties streams(Arguments arguments) {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.brokers());
        p.put(StreamsConfig.STATE_DIR_CONFIG, arguments.stateDir().toString());
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueExceptionHandler.class);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
        p.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, RocksDbSettings.class);
        p.put(StreamsConfig.ENABLE_METRICS_PUSH_CONFIG, false);
        p.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10_000);
        p.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 10_000);
        p.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        p.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        p.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
        p.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 100);
        p.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 64L << 20);
        arguments.overrides().forEach((name, value) -> {
            if (value.isEmpty()) {
                p.remove(name);
            } else {
                p.put(name, value);
            }
        });
        return p;
    }

    static Map<String, Object> sink(Arguments arguments) {
        return Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.brokers(),
                ConsumerConfig.GROUP_ID_CONFIG, APPLICATION + "-sink",
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                // One poll is one MySQL transaction: the slower it is, the larger the next.
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 50_000,
                ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20,
                ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, LongDeserializer.class,
                ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
    }

    static String countsTopic() {
        return APPLICATION + "-" + LatestAction.COUNTS + "-changelog";
    }
}
