package kudos.bench.streams;

import java.util.HashMap;
import java.util.Map;

/**
 * How many events of {@code likes} are in the counts that the sink has read. A record of the changelog says up to where
 * its transaction goes ({@link CountAt#next()}), but that is only true once the whole transaction has been read, and a
 * poll may end inside one. The consumer knows the end of what is committed, its stable end: a transaction of which one
 * record is visible lies below it as a whole. So what was seen counts as covered when the sink's position has reached
 * the stable end of that moment.
 *
 * <p>Partitions are written without transactions by the harness, so an offset is a number of events.
 */
final class Coverage {
    private static final class Partition {
        long covered; // all events below it are in what has been read
        long seen; // the furthest that any record said
        long waiting; // what becomes covered …
        long at = -1; // … when the position is here; -1: nothing waits
    }

    private final Map<Integer, Partition> partitions = new HashMap<>();

    /** Goes on where an earlier process was. */
    void resume(int partition, long covered) {
        Partition p = of(partition);
        p.covered = covered;
        p.seen = covered;
    }

    /** A record of the changelog has been read. */
    void seen(int partition, long next) {
        Partition p = of(partition);
        p.seen = Math.max(p.seen, next);
    }

    /** The poll is over: everything below {@code position} of the changelog has been seen. */
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

    /** Of all partitions. */
    long events() {
        return partitions.values().stream().mapToLong(p -> p.covered).sum();
    }

    private Partition of(int partition) {
        return partitions.computeIfAbsent(partition, n -> new Partition());
    }
}
