package kudos.bench.streams;

import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Where MySQL is. Comes as Go's driver writes it, {@code user:password@tcp(host:port)/database?…}; the parameters are
 * that driver's own and are passed over.
 */
record DataSourceName(String user, String password, String address, String database) {
    private static final Pattern GO = Pattern.compile(
            "(?:(?<user>[^:@/]*)(?::(?<password>.*))?@)?tcp\\((?<address>[^)]+)\\)/(?<database>[^/?]+)(?:\\?.*)?", Pattern.DOTALL);

    static DataSourceName parse(String dsn) {
        Matcher m = GO.matcher(dsn);
        if (!m.matches()) { // without the text, in which a password may stand
            throw new IllegalArgumentException("give it as user:password@tcp(host:port)/database");
        }
        return new DataSourceName(orEmpty(m.group("user")), orEmpty(m.group("password")), m.group("address"), m.group("database"));
    }

    String url() {
        return "jdbc:mariadb://" + address + "/" + database;
    }

    Properties credentials() {
        Properties p = new Properties();
        p.setProperty("user", user);
        p.setProperty("password", password);
        return p;
    }

    /** Without the password. */
    @Override
    public String toString() {
        return url();
    }

    private static String orEmpty(String s) {
        return s == null ? "" : s;
    }
}
