"""Spark's operators and expressions that this project knows (``protocol.stage.planner``): the
allow-list of batch-safe ones. tests/spark/test_batch_safety.py shows each entry on real Spark.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.stage.planner import KnownNames

_SAFE_JOINS: Final = frozenset({"Inner", "Cross"})

SPARK: Final = KnownNames(
    stateless=frozenset(
        {
            "Project",
            "Filter",
            "SubqueryAlias",
            "View",
            "Union",
            "Generate",
            "Expand",
            "EventTimeWatermark",
            "CollectMetrics",
            "ResolvedHint",
            "StreamingRelationV2",
            "LocalRelation",
            "OneRowRelation",
            "Range",
            "LogicalRDD",
            "LogicalRelation",
            "MapInArrow",
            "MapInPandas",
            "UpdateEventTimeWatermarkColumn",
        }
    ),
    whole_batch=frozenset({"MapInArrow", "MapInPandas"}),
    stateful_safe=frozenset(
        {
            "Aggregate",
            "Join",
            "Deduplicate",
            "Distinct",
            "TransformWithState",
            "SessionWindow",  # not a node of the plan: an Aggregate by session_window
        }
    ),
    first_row_kept=frozenset({"DeduplicateWithinWatermark"}),
    safe_joins=_SAFE_JOINS,
    # Right and full outer joins are missing: the batch's own watermark drops such rows as late
    # while they are being joined.
    joins_across_empty_buckets=_SAFE_JOINS | {"LeftOuter"},
    # CollectSet only where the set's order is not visible (``PlanFacts.sets_shown``).
    order_free_aggregates=frozenset(
        {
            "Count",
            "Sum",
            "Min",
            "Max",
            "CollectSet",
            "BitAndAgg",
            "BitOrAgg",
            "BitXorAgg",
            "Average",
            "BoolAnd",
            "BoolOr",
            "CountIf",
        }
    ),
    tied_aggregates=frozenset({"MinBy", "MaxBy"}),
    generators=frozenset({"Explode", "PosExplode", "Inline", "Stack", "JsonTuple"}),
    # Catalog, database and time zone of a session are the same at every replica.
    childless=frozenset(
        {
            "AttributeReference",
            "OuterReference",
            "NamedLambdaVariable",
            "CommonExpressionRef",
            "PythonUDF",
            "RowNumber",
            "CurrentRow",
            "UnboundedPreceding",
            "Literal",
            "CreateArray",
            "CreateMap",
            "CreateNamedStruct",
            "Concat",
            "Pi",
            "EulerNumber",
            "SparkVersion",
            "CurrentCatalog",
            "CurrentDatabase",
            "CurrentTimeZone",
            "ResolvedCollation",
        }
    ),
    # Spark calls it deterministic, and replaces it by the current time once per batch.
    not_deterministic=frozenset({"CurrentTime"}),
)
"""Names of Spark's classes, without their packages."""
