package kudos.bench.streams;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sun.misc.Signal;

/** The process: counts {@code likes} into MySQL until SIGTERM or SIGINT, or until something fails. */
public final class Main {
    private static final Logger LOG = LoggerFactory.getLogger(Main.class);

    /** Together with the compaction after them, below the 10 s that the harness gives a contender to end. */
    private static final Duration CLOSE_STREAMS = Duration.ofSeconds(4);
    private static final Duration FINISH_SINK = Duration.ofSeconds(2);

    private final Arguments arguments;
    private final Report report = new Report(System.out);
    /** At zero when the process is to end. */
    private final CountDownLatch end = new CountDownLatch(1);
    /** At zero when all tasks run, or none ever will. */
    private final CountDownLatch ready = new CountDownLatch(1);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private Main(Arguments arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] args) {
        int code = 1;
        try {
            new Main(Arguments.parse(args)).run();
            code = 0;
        } catch (Arguments.UsageException e) {
            System.err.println("streams: " + e.getMessage());
            code = 2;
        } catch (Exception e) {
            LOG.error("streams: {}", e.getMessage(), e);
        }
        System.exit(code); // ends threads of the client that Streams could not end in time
    }

    private void run() throws Exception {
        Signal.handle(new Signal("TERM"), signal -> stop());
        Signal.handle(new Signal("INT"), signal -> stop());
        try (LikeCountTable table = LikeCountTable.open(arguments.dataSource())) {
            count(table);
        }
        if (failure.get() != null) {
            throw new IllegalStateException("counting stopped: " + failure.get().getMessage(), failure.get());
        }
        StateSize size = StateSize.compactAndMeasure(arguments.stateDir().resolve(Settings.APPLICATION));
        report.state(size.bytes(), size.pairs());
    }

    /** Runs Streams and, beside it, the sink; returns when both have ended. */
    private void count(LikeCountTable table) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(LikesTopology.build(), Settings.streams(arguments));
        streams.setUncaughtExceptionHandler(e -> {
            fail(e);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            switch (now) {
                case RUNNING -> ready.countDown();
                case ERROR, NOT_RUNNING -> stop();
                default -> { }
            }
        });
        report.firstPoll();
        streams.start();
        // Only then is the changelog there. Bounded by Streams itself: task.timeout.ms, and a source topic that is missing.
        ready.await();
        Sink sink = null;
        Thread sinkThread = null;
        if (end.getCount() > 0) {
            sink = new Sink(Settings.sink(arguments), table, report);
            sinkThread = new Thread(sink, "sink");
            sinkThread.setUncaughtExceptionHandler((thread, e) -> {
                fail(e);
                stop();
            });
            sinkThread.start();
        }
        end.await();
        if (!streams.close(CloseOptions.timeout(CLOSE_STREAMS)
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP))) {
            fail(new IllegalStateException("Kafka Streams did not end within " + CLOSE_STREAMS));
        }
        if (sink != null) {
            sink.finish();
            sinkThread.join(FINISH_SINK.toMillis());
            if (sinkThread.isAlive()) {
                fail(new IllegalStateException("the sink did not end within " + FINISH_SINK));
            }
        }
    }

    private void stop() {
        ready.countDown();
        end.countDown();
    }

    private void fail(Throwable e) {
        failure.compareAndSet(null, e);
    }
}
