package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;

/**
 * Stand-in for the class of the same name in Spark's Kafka token provider: the part of it that the
 * connector calls when no delegation token is in use. It collects client settings in a Java map.
 *
 * <p>With a broker that asks for no authentication the token provider has nothing to add, so both
 * forms of {@code setAuthenticationConfigIfNeeded} leave the settings as they are.
 */
public final class KafkaConfigUpdater {
  private final Map<String, Object> settings = new HashMap<>();

  public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> kafkaParams) {
    scala.collection.Iterator<scala.Tuple2<String, Object>> pairs = kafkaParams.iterator();
    while (pairs.hasNext()) {
      scala.Tuple2<String, Object> pair = pairs.next();
      settings.put(pair._1(), pair._2());
    }
  }

  public KafkaConfigUpdater set(String key, Object value) {
    settings.put(key, value);
    return this;
  }

  public KafkaConfigUpdater setIfUnset(String key, Object value) {
    settings.putIfAbsent(key, value);
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> clusterConfig) {
    return this;
  }

  public Map<String, Object> build() {
    return new HashMap<>(settings);
  }
}
