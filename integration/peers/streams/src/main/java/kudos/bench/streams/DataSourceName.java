package kudos.bench.streams;

import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The address of MySQL, in the format of Go's driver: {@code user:password@tcp(host:port)/database?…}. The parameters
 * are specific to that driver and ignored.
 */
record DataSourceName(String user, String password, String address, String database) {
    private static final Pattern GO = Pattern.compile(
            "(?:(?<user>[^:@/]*)(?::(?<password>.*))?@)?tcp\\((?<address>[^)]+)\\)/(?<database>[^/?]+)(?:\\?.*)?", Pattern.DOTALL);

    static DataSourceName parse(String dsn) {
        Matcher m = GO.matcher(dsn);
        if (!m.matches()) { // without the text, which may contain a password
            throw new IllegalArgumentException("must be user:password@tcp(host:port)/database");
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
