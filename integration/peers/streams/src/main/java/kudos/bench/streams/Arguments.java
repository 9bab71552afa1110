package kudos.bench.streams;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * The command line, which is the same for every contender in the benchmark.
 *
 * @param brokers    {@code HOST:PORT[,…]}
 * @param dataSource the MySQL database
 * @param stateDir   the directory for the RocksDB stores
 * @param overrides  settings of Kafka Streams that override those of {@link Settings}, to compare them; an empty value
 *                   selects Kafka's default
 */
record Arguments(String brokers, DataSourceName dataSource, Path stateDir, Map<String, String> overrides) {
    static final String USAGE = "usage: java @java.options -jar streams.jar --brokers HOST:PORT[,...] --mysql-dsn DSN"
            + " --state-dir DIR [--set NAME=VALUE ...]";

    /** An invalid command line. */
    static final class UsageException extends IllegalArgumentException {
        UsageException(String message) {
            super(message + "\n" + USAGE);
        }
    }

    /** Accepts {@code --name value} and {@code --name=value}. {@code --redis} is for another peer and ignored. */
    static Arguments parse(String... args) {
        Map<String, String> given = new HashMap<>();
        Map<String, String> overrides = new HashMap<>();
        for (int i = 0; i < args.length; i++) {
            String name = args[i];
            String value;
            int equals = name.indexOf('=');
            if (equals > 0) {
                value = name.substring(equals + 1);
                name = name.substring(0, equals);
            } else if (++i < args.length) {
                value = args[i];
            } else {
                throw new UsageException(name + " needs a value");
            }
            switch (name) {
                case "--brokers", "--mysql-dsn", "--state-dir", "--redis" -> given.put(name, value);
                case "--set" -> {
                    int split = value.indexOf('=');
                    if (split <= 0) {
                        throw new UsageException("--set " + value + ": use NAME=VALUE");
                    }
                    overrides.put(value.substring(0, split), value.substring(split + 1));
                }
                default -> throw new UsageException("unknown flag " + name);
            }
        }
        for (String needed : new String[] {"--brokers", "--mysql-dsn", "--state-dir"}) {
            if (given.getOrDefault(needed, "").isEmpty()) {
                throw new UsageException(needed + " is missing");
            }
        }
        DataSourceName dataSource;
        try {
            dataSource = DataSourceName.parse(given.get("--mysql-dsn"));
        } catch (IllegalArgumentException e) {
            throw new UsageException("--mysql-dsn: " + e.getMessage());
        }
        return new Arguments(given.get("--brokers"), dataSource, Path.of(given.get("--state-dir")), overrides);
    }
}
