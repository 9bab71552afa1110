package kudos.bench.streams;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The table {@code like_count}: the sink's one connection to MySQL. */
final class LikeCountTable implements AutoCloseable {
    /** Some 60 KB per statement. */
    private static final int ROWS_PER_STATEMENT = 2_000;

    private final Connection connection;

    private LikeCountTable(Connection connection) {
        this.connection = connection;
    }

    /** Connects, and creates the table if it is missing. */
    static LikeCountTable open(DataSourceName source) throws SQLException {
        Connection connection = DriverManager.getConnection(source.url(), source.credentials());
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE IF NOT EXISTS like_count (post_id BIGINT UNSIGNED PRIMARY KEY, count BIGINT NOT NULL)");
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setAutoCommit(false);
            return new LikeCountTable(connection);
        } catch (SQLException e) {
            connection.close();
            throw e;
        }
    }

    /** Writes the counts in one transaction, in the order of the primary key. */
    void write(Map<Long, Long> counts) {
        if (counts.isEmpty()) {
            return;
        }
        List<Long> posts = new ArrayList<>(counts.keySet());
        posts.sort(Long::compareUnsigned);
        try (Statement statement = connection.createStatement()) {
            for (int from = 0; from < posts.size(); from += ROWS_PER_STATEMENT) {
                statement.execute(upsert(posts.subList(from, Math.min(from + ROWS_PER_STATEMENT, posts.size())), counts));
            }
            connection.commit();
        } catch (SQLException e) {
            throw new IllegalStateException("write " + counts.size() + " counts to like_count: " + e.getMessage(), e);
        }
    }

    static String upsert(List<Long> posts, Map<Long, Long> counts) {
        StringBuilder sql = new StringBuilder(80 + 32 * posts.size()).append("INSERT INTO like_count (post_id, count) VALUES ");
        String separator = "(";
        for (long post : posts) {
            sql.append(separator).append(Long.toUnsignedString(post)).append(',').append(counts.get(post).longValue()).append(')');
            separator = ",(";
        }
        return sql.append(" ON DUPLICATE KEY UPDATE count = VALUES(count)").toString();
    }

    @Override
    public void close() throws SQLException {
        connection.close();
    }
}
