package kudos.client;

import static java.lang.Integer.parseInt;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The testee of this client: see clients/conformance/README.md. */
public final class Testee {
  // Requests are objects of strings, numbers and lists of strings; answers are ASCII.
  private static final Pattern FIELD =
      Pattern.compile("\"(\\w+)\"\\s*:\\s*(\"(?:[^\"\\\\]|\\\\.)*\"|\\[[^\\]]*\\]|[^\\s,}]+)");
  private static final Pattern UNICODE = Pattern.compile("\\\\u(\\p{XDigit}{4})");

  public static void main(String[] args) {
    var in = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    in.lines().map(Testee::answer).forEach(System.out::println);
  }

  static String answer(String line) {
    Map<String, String> request = new HashMap<>();
    FIELD.matcher(line).results().forEach(m -> request.putIfAbsent(m.group(1), text(m.group(2))));
    String result;
    try {
      result = result(request);
    } catch (RuntimeException e) {
      result = "\"error\":\"" + e.toString().replaceAll("[^ !#-\\[\\]-~]", "'") + "\"";
    }
    return "{\"id\":" + request.get("id") + "," + result + "}";
  }

  private static String result(Map<String, String> request) {
    long post = Long.parseUnsignedLong(request.getOrDefault("post_id", "0"));
    long user = Long.parseUnsignedLong(request.getOrDefault("user_id", "0"));
    byte[] key = new UserBuckets(request.getOrDefault("user_buckets", "")).key(post, user);
    String answer = "\"key\":\"" + new String(key, UTF_8) + "\"";
    return switch (request.get("op")) {
      case "event" -> answer + ",\"value\":\"" + HexFormat.of().formatHex(new LikeEventSerializer().serialize("likes",
          new LikeEvent(post, user, LikeEvent.Action.valueOf(request.get("action")),
              Long.parseLong(request.getOrDefault("time_ms", "0")), request.get("region")))) + "\"";
      case "partition" ->
          answer + ",\"partition\":" + Partitions.partitionOf(key, parseInt(request.get("partitions")));
      case "database" -> "\"database\":"
          + Partitions.databaseOf(parseInt(request.get("partition")), parseInt(request.get("databases")));
      default -> "\"unsupported\":true";
    };
  }

  private static String text(String json) {
    return json.startsWith("\"") ? UNICODE.matcher(json.substring(1, json.length() - 1)).replaceAll(
        m -> Matcher.quoteReplacement("" + (char) parseInt(m.group(1), 16))).translateEscapes()
        : json.replaceAll("[\\[\\]\"]", "");
  }
}
