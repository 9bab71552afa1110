package kudos.client;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** The setting topics.user_buckets of kudos, and the record keys that follow from it. */
public final class UserBuckets {
  /** The setting of LikeKeySerializer and LikePartitioner, such as 42:16,43:8. */
  public static final String CONFIG = "kudos.user.buckets";

  private static final Pattern ENTRY = Pattern.compile("(\\d{1,20}):(\\d{1,4})");
  private static final int MAX_BUCKETS = 1024;

  private final Map<Long, Integer> buckets = new HashMap<>();

  /** Parses a list of post:buckets, separated by commas. */
  public UserBuckets(String list) {
    for (String entry : list.isBlank() ? new String[0] : list.split(",")) {
      var m = ENTRY.matcher(entry.strip());
      long post = m.matches() ? Long.parseUnsignedLong(m.group(1)) : 0;
      int count = post == 0 ? 0 : Integer.parseInt(m.group(2));
      if (count < 2 || count > MAX_BUCKETS || buckets.put(post, count) != null) {
        throw new IllegalArgumentException(CONFIG + ": \"" + entry
            + "\" is not <post>:<buckets>, each post once, with 2 to " + MAX_BUCKETS + " buckets");
      }
    }
  }

  static UserBuckets of(Map<String, ?> configs) {
    return new UserBuckets(configs.get(CONFIG) instanceof String list ? list : "");
  }

  /** The record key: post, or post/bucket for a post with user buckets. */
  public byte[] key(long post, long user) {
    String key = Long.toUnsignedString(post);
    if (buckets.containsKey(post)) {
      key += "/" + Partitions.partitionOf(Long.toUnsignedString(user).getBytes(US_ASCII), buckets.get(post));
    }
    return key.getBytes(US_ASCII);
  }
}
