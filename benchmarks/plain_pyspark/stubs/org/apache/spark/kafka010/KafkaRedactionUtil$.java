package org.apache.spark.kafka010;

import java.util.Locale;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stand-in for the Scala object {@code KafkaRedactionUtil} of Spark's Kafka token provider: hides the
 * values of client settings that look secret before the connector logs them.
 */
public final class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  private KafkaRedactionUtil$() {}

  public Seq<Tuple2<String, Object>> redactParams(Seq<Tuple2<String, Object>> params) {
    java.util.List<Tuple2<String, Object>> shown = new java.util.ArrayList<>();
    for (Tuple2<String, Object> param : CollectionConverters.asJava(params)) {
      String key = param._1().toLowerCase(Locale.ROOT);
      boolean secret = key.contains("password") || key.contains("jaas") || key.contains("secret");
      shown.add(secret ? new Tuple2<>(param._1(), "*********(redacted)") : param);
    }
    return scala.collection.immutable.List.from(CollectionConverters.asScala(shown));
  }
}
