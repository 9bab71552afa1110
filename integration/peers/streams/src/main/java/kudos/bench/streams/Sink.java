package kudos.bench.streams;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes the counts to MySQL: poll → newest count of each post → one MySQL transaction → report. It reads only committed
 * records. Counts are absolute and a post's are in one partition, so after a crash between the commits in MySQL and
 * Kafka, reading some of them again results in the same table.
 */
final class Sink implements Runnable {
    private static final Duration POLL = Duration.ofMillis(50);

    private final Map<String, Object> settings;
    private final LikeCountTable table;
    private final Report report;
    private final Coverage coverage = new Coverage();
    private volatile boolean finishing;

    Sink(Map<String, Object> settings, LikeCountTable table, Report report) {
        this.settings = settings;
        this.table = table;
        this.report = report;
    }

    /** Nothing more will be committed to Kafka: run returns when everything is in MySQL. */
    void finish() {
        finishing = true;
    }

    @Override
    public void run() {
        try (KafkaConsumer<Long, byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(Settings.countsTopic()).stream()
                    .map(p -> new TopicPartition(p.topic(), p.partition())).toList();
            consumer.assign(partitions);
            resume(consumer, Set.copyOf(partitions));
            while (!finishing) {
                step(consumer);
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                step(consumer);
            }
            consumer.commitSync(positions(consumer));
        }
    }

    private void resume(KafkaConsumer<Long, byte[]> consumer, Set<TopicPartition> partitions) {
        consumer.committed(partitions).forEach((partition, committed) -> {
            if (committed != null) {
                coverage.resume(partition.partition(), Long.parseLong(committed.metadata()));
            }
        });
    }

    private void step(KafkaConsumer<Long, byte[]> consumer) {
        ConsumerRecords<Long, byte[]> records = consumer.poll(POLL);
        Map<Long, Long> counts = new HashMap<>();
        for (ConsumerRecord<Long, byte[]> record : records) {
            CountAt value = CountAt.decode(record.value());
            coverage.seen(record.partition(), value.next());
            if (record.key() != CountAt.PROGRESS) {
                counts.put(record.key(), value.count());
            }
        }
        table.write(counts);
        long before = coverage.events();
        for (TopicPartition partition : consumer.assignment()) {
            long position = consumer.position(partition);
            consumer.currentLag(partition).ifPresent(lag -> coverage.read(partition.partition(), position, position + lag));
        }
        if (coverage.events() > before) {
            report.committed(coverage.events());
            consumer.commitAsync(positions(consumer), null);
        }
    }

    /** The positions to resume from, with the events covered there. */
    private Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<Long, byte[]> consumer) {
        return consumer.assignment().stream().collect(Collectors.toMap(p -> p,
                p -> new OffsetAndMetadata(consumer.position(p), Long.toString(coverage.covered(p.partition())))));
    }
}
