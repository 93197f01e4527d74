"""Errors that a fault explains. Everything else in a log at level error, and every traceback
that is not here, fails a run.
"""

from __future__ import annotations

import re
from typing import Final

from chaos.excuses import BROKER_AWAY, NETWORK, STARTS, STILL, Allowed
from chaos.schedule import ELASTIC, Kind

ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed(
        re.compile(r"Setting Spark log level to .ERROR"),
        "Spark says from which level on it speaks",
        most=40,
    ),
    Allowed(
        re.compile(r"controller event queue overloaded. Timed out heartbeat"),
        "the broker was paused, or just begins",
        own=BROKER_AWAY,
        most=5,
        starting=2,
    ),
    Allowed(
        re.compile(
            r'\[anabranch#.*(?:old epoch|fenced by a newer instance).*"logger":'
            r' "anabranch.adapters.kafka"'
        ),
        "a newer process of the same name replaced it, or the transaction was given up, and this"
        " one's next write was rejected",
        own=STILL | NETWORK,
        anywhere=BROKER_AWAY,
        most=3,  # the client says it of the request, of the transaction and of itself
    ),
    Allowed(
        re.compile(
            r'"exit_code": 1, "error": "Unavailable:'
            r' [^"]*(?:_TRANSPORT|_TIMED_OUT|_ALL_BROKERS_DOWN|_UNKNOWN_PARTITION)\b.*"event":'
            r' "stopped"'
        ),
        "a service that starts while the broker does not answer, or does not know its topics yet,"
        " ends and is started again",
        own=NETWORK | STILL | STARTS,
        anywhere=BROKER_AWAY,
        after_s=90,
    ),
    Allowed(
        re.compile(r'"event": "replica_ended".*Unavailable: .*no answer about its end', re.DOTALL),
        "a replica that began asked a broker that did not answer for ten seconds; it begins again",
        own=NETWORK | STILL,
        anywhere=BROKER_AWAY,
        after_s=90,
    ),
    Allowed(
        re.compile(
            r'(?:"event": "spark"|"exit_code": 1).*Unavailable: [^"]*is not in the log after \d+'
            r" attempts",
            re.DOTALL,
        ),
        "the broker was away for so long that a service gave up waiting to see its own record; it"
        " is started again",
        anywhere=BROKER_AWAY,
        after_s=90,
    ),
    Allowed(
        re.compile(r'"event": "spark".*plan_socket\.py.*TimeoutError: timed out', re.DOTALL),
        "the process was paused while Spark asked it for a plan: its question is too old when both"
        " wake",
        own=STILL,
    ),
    Allowed(
        re.compile(
            r"Unexpected error handling request .*=CONTROLLER_REGISTRATION|channel manager timed"
            r" out before sending the request"
        ),
        "a broker that starts again asks its controller before that has been elected",
        own=BROKER_AWAY,
        most=5,
    ),
    Allowed(
        re.compile(r"(?:Error processing append operation on partition|slow controller event)"),
        "the broker was away in the middle of its work: a batch that overtook one that was lost is"
        " rejected, and both are sent again",
        own=BROKER_AWAY,
        most=20,
    ),
    Allowed(
        re.compile(r'"event": "spark".*errors\.Fenced: .* was ended by epoch \d+'),
        "a newer process of the same name replaced it, and Spark tells that the batch in which this"
        " was found ended",
        own=frozenset({Kind.ZOMBIE}) | ELASTIC,
        anywhere=ELASTIC,
        after_s=90,
    ),
    Allowed(
        re.compile(r'"event": "spark".*_PURGE_QUEUE: Local: Purged in queue'),
        "a query that was stopped while the broker was away dropped what it had not sent, and Spark"
        " tells that its batch ended",
        own=NETWORK,
        anywhere=BROKER_AWAY,
        after_s=90,
    ),
    Allowed(
        re.compile(r'"event": "spark".*ConnectionError: the planner closed the connection'),
        "its process was killed, and its Java outlived it for so long that it told which queries"
        " ended with it",
        own=STARTS - {Kind.TERMINATE},
        after_s=5,
        most=4,
    ),
    Allowed(
        re.compile(r'"exit_code": 3\b'),
        "a newer process of the same name replaced it",
        own=frozenset({Kind.ZOMBIE}),
        after_s=90,
        most=1,
    ),
)
