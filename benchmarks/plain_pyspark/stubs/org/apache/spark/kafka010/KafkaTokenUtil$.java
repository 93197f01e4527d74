package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/**
 * Stand-in for the Scala object {@code KafkaTokenUtil} of Spark's Kafka token provider (a Scala
 * object is a class with a dollar sign and one instance, {@code MODULE$}): no delegation token is
 * ever in use here.
 */
public final class KafkaTokenUtil$ {
  public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

  private KafkaTokenUtil$() {}

  public Option<Object> findMatchingTokenClusterConfig(SparkConf conf, String bootstrapServers) {
    return Option.empty();
  }

  public boolean needTokenUpdate(Map<String, Object> params, Option<?> clusterConfig) {
    return false;
  }
}
