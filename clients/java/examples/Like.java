import java.util.Map;
import java.util.Random;
import kudos.client.LikeEvent;
import kudos.client.LikeEvent.Action;
import kudos.client.LikeEventSerializer;
import kudos.client.LikeKeySerializer;
import kudos.client.LikePartitioner;
import org.apache.kafka.clients.producer.KafkaProducer;

/** Likes a new post and prints the event's position. The default of BROKERS suits `kudos dev`. */
public class Like {
  public static void main(String[] args) throws Exception {
    Map<String, Object> config = Map.of(
        "bootstrap.servers", System.getenv().getOrDefault("BROKERS", "127.0.0.1:9092"),
        "partitioner.class", LikePartitioner.class,
        "key.serializer", LikeKeySerializer.class,
        "value.serializer", LikeEventSerializer.class);
    try (var producer = new KafkaProducer<LikeEvent, LikeEvent>(config)) {
      var event = new LikeEvent(new Random().nextLong(), 7, Action.LIKE);
      var sent = producer.send(event.record("likes")).get();
      System.out.printf("%s: position %d:%d%n", event, sent.partition(), sent.offset());
    }
  }
}
