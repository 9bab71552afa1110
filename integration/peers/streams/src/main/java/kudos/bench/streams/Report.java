package kudos.bench.streams;

import java.io.PrintStream;
import java.time.Instant;

/** The lines on stdout that the harness reads: one JSON object each. Used by several threads. */
final class Report {
    private final PrintStream out;

    Report(PrintStream out) {
        this.out = out;
    }

    /** The first poll is about to start. */
    void firstPoll() {
        line("{\"event\":\"first_poll\",\"time_unix_ns\":" + now() + "}");
    }

    /** MySQL has committed counts that include {@code events} events of the topic. */
    void committed(long events) {
        line("{\"event\":\"committed\",\"events\":" + events + ",\"time_unix_ns\":" + now() + "}");
    }

    /** The size on disk of the state for deduplication. */
    void state(long bytes, long pairs) {
        line("{\"event\":\"state\",\"bytes\":" + bytes + ",\"pairs\":" + pairs + "}");
    }

    private synchronized void line(String json) {
        out.println(json);
        out.flush();
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }
}
