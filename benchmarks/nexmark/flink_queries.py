"""The queries in Flink SQL, each with the columns of its answers. Imports nothing of Flink."""

from __future__ import annotations

from typing import Final

EVENTS: Final = """
CREATE TABLE events (
  `at` BIGINT,
  person ROW<id BIGINT, name STRING, email STRING, credit_card STRING, city STRING,
    state STRING, extra STRING>,
  auction ROW<id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires BIGINT,
    seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, extra STRING>,
  event_time AS TO_TIMESTAMP_LTZ(`at`, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '{out_of_orderness_s}' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '{input}',
  'properties.bootstrap.servers' = '{kafka}',
  'properties.group.id' = 'nexmark-{output}',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
)
"""
VIEWS: Final = (
    """CREATE VIEW person AS
    SELECT `at`, event_time, person.id AS id, person.name AS name, person.city AS city,
      person.state AS state
    FROM events WHERE person IS NOT NULL""",
    """CREATE VIEW auction AS
    SELECT `at`, event_time, auction.id AS id, auction.expires AS expires,
      auction.seller AS seller, auction.category AS category
    FROM events WHERE auction IS NOT NULL""",
    """CREATE VIEW bid AS
    SELECT `at`, event_time, bid.auction AS auction, bid.bidder AS bidder, bid.price AS price
    FROM events WHERE bid IS NOT NULL""",
    # What two parts of a query read, or a window function, has a name.
    """CREATE VIEW valid_bids AS
    SELECT a.id, a.category, a.event_time AS opened, b.price
    FROM auction a JOIN bid b
      ON a.id = b.auction
      AND b.`at` <= a.expires
      AND b.event_time BETWEEN a.event_time AND a.event_time + INTERVAL '2' SECOND""",
    """CREATE VIEW counts AS
    SELECT window_start, window_end, auction, COUNT(*) AS bids
    FROM TABLE(
      HOP(TABLE bid, DESCRIPTOR(event_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction""",
)
SINK: Final = """
CREATE TABLE answers ({columns}) WITH (
  'connector' = 'kafka',
  'topic' = '{output}',
  'properties.bootstrap.servers' = '{kafka}',
  'properties.compression.type' = 'lz4',
  'sink.delivery-guarantee' = 'at-least-once',
  'format' = 'json'
)
"""
QUERIES: Final = {
    "q0": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `at` BIGINT",
        "SELECT auction, bidder, price, `at` FROM bid",
    ),
    "q1": (
        "auction BIGINT, bidder BIGINT, euro STRING, `at` BIGINT",
        "SELECT auction, bidder, CAST(0.908 * price AS STRING), `at` FROM bid",
    ),
    "q2": (
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q3": (
        "name STRING, city STRING, state STRING, auction BIGINT",
        """
        SELECT p.name, p.city, p.state, a.id
        FROM auction a JOIN person p
          ON a.seller = p.id
          AND a.event_time BETWEEN p.event_time - INTERVAL '1' SECOND
            AND p.event_time + INTERVAL '1' MINUTE
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
        """,
    ),
    "q4": (
        "category BIGINT, starts BIGINT, average BIGINT",
        """
        SELECT
          category,
          1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')),
          SUM(price) / COUNT(*)
        FROM (
          SELECT window_start, window_end, id, category, MAX(price) AS price
          FROM TABLE(TUMBLE(TABLE valid_bids, DESCRIPTOR(opened), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end, id, category
        )
        GROUP BY window_start, window_end, category
        """,
    ),
    "q5": (
        "auction BIGINT, bids BIGINT, ends BIGINT",
        """
        SELECT
          c.auction,
          c.bids,
          1000 * UNIX_TIMESTAMP(DATE_FORMAT(c.window_end, 'yyyy-MM-dd HH:mm:ss'))
        FROM counts c
        JOIN (
          SELECT window_start, window_end, MAX(bids) AS bids
          FROM counts GROUP BY window_start, window_end
        ) m
          ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.bids
        """,
    ),
    "q7": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `at` BIGINT",
        """
        SELECT b.auction, b.bidder, b.price, b.`at`
        FROM (
          SELECT *
          FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
        ) b
        JOIN (
          SELECT window_start, window_end, MAX(price) AS price
          FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end
        ) m
          ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.price
        """,
    ),
    "q8": (
        "id BIGINT, name STRING, starts BIGINT",
        """
        SELECT
          p.id,
          p.name,
          1000 * UNIX_TIMESTAMP(DATE_FORMAT(p.window_start, 'yyyy-MM-dd HH:mm:ss'))
        FROM (
          SELECT window_start, window_end, id, name
          FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end, id, name
        ) p
        JOIN (
          SELECT window_start, window_end, seller
          FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end, seller
        ) s
          ON p.window_start = s.window_start AND p.window_end = s.window_end AND p.id = s.seller
        """,
    ),
}
