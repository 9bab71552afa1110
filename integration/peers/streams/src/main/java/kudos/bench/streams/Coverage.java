package kudos.bench.streams;

import java.util.HashMap;
import java.util.Map;

/**
 * How many events of {@code likes} the counts that the sink has read include. A changelog record has the end of its
 * transaction ({@link CountAt#next()}), but that is only reached once the whole transaction has been read, and a poll
 * may end inside one. The consumer knows the last stable offset: a transaction of which one record is visible is below
 * it as a whole. So what was seen counts as covered when the sink's position has reached the stable end of that moment.
 *
 * <p>The harness writes the partitions without transactions, so an offset is a number of events.
 */
final class Coverage {
    private static final class Partition {
        long covered; // the counts read include all events below it
        long seen; // the highest next of any record read
        long waiting; // what becomes covered …
        long at = -1; // … when the position is here; -1: nothing waits
    }

    private final Map<Integer, Partition> partitions = new HashMap<>();

    /** Resumes where an earlier process stopped. */
    void resume(int partition, long covered) {
        Partition p = of(partition);
        p.covered = covered;
        p.seen = covered;
    }

    /** Notes a record read from the changelog. */
    void seen(int partition, long next) {
        Partition p = of(partition);
        p.seen = Math.max(p.seen, next);
    }

    /** Ends a poll: everything below {@code position} in the changelog has been seen. */
    void read(int partition, long position, long stableEnd) {
        Partition p = of(partition);
        if (p.at >= 0 && position >= p.at) {
            p.covered = p.waiting;
            p.at = -1;
        }
        if (p.at < 0 && p.seen > p.covered) {
            p.waiting = p.seen;
            p.at = stableEnd;
            if (position >= stableEnd) {
                p.covered = p.seen;
                p.at = -1;
            }
        }
    }

    long covered(int partition) {
        return of(partition).covered;
    }

    /** The events covered in all partitions. */
    long events() {
        return partitions.values().stream().mapToLong(p -> p.covered).sum();
    }

    private Partition of(int partition) {
        return partitions.computeIfAbsent(partition, n -> new Partition());
    }
}
