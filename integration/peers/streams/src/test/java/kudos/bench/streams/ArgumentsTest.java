package kudos.bench.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ArgumentsTest {
    @Test
    void takesBothFormsOfAFlag() {
        Arguments a = Arguments.parse("--brokers", "a:1,b:2", "--mysql-dsn=root:p@ss:w@tcp(db:3306)/kudos?parseTime=true",
                "--state-dir", "/tmp/x", "--redis", "c:3", "--set", "commit.interval.ms=1000");
        assertEquals("a:1,b:2", a.brokers());
        assertEquals(new DataSourceName("root", "p@ss:w", "db:3306", "kudos"), a.dataSource());
        assertEquals("/tmp/x", a.stateDir().toString());
        assertEquals(Map.of("commit.interval.ms", "1000"), a.overrides());
    }

    @Test
    void saysWhatIsWrong() {
        for (var c : Map.of(
                "--brokers is missing", List.of("--mysql-dsn", "tcp(a:1)/b", "--state-dir", "c"),
                "unknown flag --borkers", List.of("--borkers", "a:1"),
                "--state-dir needs a value", List.of("--state-dir"),
                "user:password@tcp(host:port)/database", List.of("--brokers", "a:1", "--mysql-dsn", "mysql://secret@a/b", "--state-dir", "c"),
                "use NAME=VALUE", List.of("--set", "x")).entrySet()) {
            var e = assertThrows(Arguments.UsageException.class, () -> Arguments.parse(c.getValue().toArray(String[]::new)));
            assertTrue(e.getMessage().contains(c.getKey()), e.getMessage());
            assertTrue(!e.getMessage().contains("secret"), e.getMessage());
        }
    }

    @Test
    void neverShowsThePassword() {
        assertEquals("jdbc:mariadb://db:3306/kudos", DataSourceName.parse("root:secret@tcp(db:3306)/kudos").toString());
    }

    @Test
    void theUpsertHasUnsignedIds() {
        assertEquals("INSERT INTO like_count (post_id, count) VALUES (1,-2),(18446744073709551615,3) ON DUPLICATE KEY UPDATE count = VALUES(count)",
                LikeCountTable.upsert(List.of(1L, -1L), Map.of(1L, -2L, -1L, 3L)));
    }
}
