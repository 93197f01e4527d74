"""The queries in Spark's SQL, for plain PySpark. Imports nothing of Spark."""

from __future__ import annotations

from typing import Final

EVENT: Final = (
    "at BIGINT, person STRUCT<id: BIGINT, name: STRING, email: STRING, credit_card: STRING,"
    " city: STRING, state: STRING, extra: STRING>, auction STRUCT<id: BIGINT, item: STRING,"
    " initial_bid: BIGINT, reserve: BIGINT, expires: BIGINT, seller: BIGINT, category: BIGINT,"
    " extra: STRING>, bid STRUCT<auction: BIGINT, bidder: BIGINT, price: BIGINT, channel: STRING,"
    " extra: STRING>"
)
# The condition names the event time, or Spark filters below the watermark: then records of other
# kinds, such as those that end the stream, would not move time on.
VIEWS: Final = {
    "person": (
        "SELECT at, event_time, person.* FROM events"
        " WHERE if(event_time IS NULL, false, person IS NOT NULL)"
    ),
    "auction": (
        "SELECT at, event_time, auction.* FROM events"
        " WHERE if(event_time IS NULL, false, auction IS NOT NULL)"
    ),
    "bid": (
        "SELECT at, event_time, bid.* FROM events"
        " WHERE if(event_time IS NULL, false, bid IS NOT NULL)"
    ),
}

QUERIES: Final = {
    "q0": "SELECT auction, bidder, price, at FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS STRING) AS euro, at FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction
        FROM auction a JOIN person p
          ON a.seller = p.id
          AND a.event_time >= p.event_time - INTERVAL 1 SECOND
          AND a.event_time <= p.event_time + INTERVAL 1 MINUTE
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, unix_millis(window.start) AS starts, sum(price) DIV count(*) AS average
        FROM (
          SELECT window, id, category, max(price) AS price
          FROM (
            SELECT a.id, a.category, a.event_time, b.price
            FROM auction a JOIN bid b
              ON a.id = b.auction
              AND b.at <= a.expires
              AND b.event_time >= a.event_time
              AND b.event_time <= a.event_time + INTERVAL 2 SECONDS
          )
          GROUP BY window(event_time, '10 seconds'), id, category
        )
        GROUP BY window, category
    """,
    "q5": """
        SELECT auction, bids, unix_millis(window.end) AS ends
        FROM (
          SELECT window, inline(filter(counted, each -> each.bids = most))
          FROM (
            SELECT
              window,
              max(bids) AS most,
              sort_array(collect_set(struct(auction, bids))) AS counted
            FROM (
              SELECT window, auction, count(*) AS bids
              FROM bid GROUP BY window(event_time, '10 seconds', '2 seconds'), auction
            )
            GROUP BY window
          )
        )
    """,
    "q7": """
        SELECT b.auction, b.bidder, b.price, b.at
        FROM (SELECT *, window(event_time, '10 seconds') AS window FROM bid) b
        JOIN (
          SELECT window, max(price) AS price FROM bid GROUP BY window(event_time, '10 seconds')
        ) top
          ON b.window = top.window AND b.price = top.price
    """,
    "q8": """
        SELECT p.id, p.name, unix_millis(p.window.start) AS starts
        FROM (
          SELECT window, id, name FROM person GROUP BY window(event_time, '10 seconds'), id, name
        ) p
        JOIN (
          SELECT window, seller FROM auction GROUP BY window(event_time, '10 seconds'), seller
        ) s
          ON p.window = s.window AND p.id = s.seller
    """,
}
