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

    /** Together with the compaction that follows, below the 10 s that the harness allows a contender for shutdown. */
    private static final Duration CLOSE_STREAMS = Duration.ofSeconds(4);
    private static final Duration FINISH_SINK = Duration.ofSeconds(2);

    private final Arguments arguments;
    private final Report report = new Report(System.out);
    /** Zero when the process must end. */
    private final CountDownLatch end = new CountDownLatch(1);
    /** Zero when all tasks run, or never will. */
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

    /** Runs Streams and the sink concurrently; returns when both have ended. */
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
        // The changelog exists only then. Streams bounds the wait: by task.timeout.ms, and it stops if a source topic is missing.
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
