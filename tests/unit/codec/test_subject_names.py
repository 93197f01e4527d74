"""Subjects of outputs, beside the names that Confluent's serializers give."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from anabranch.codec.subject_names import STRATEGIES, Strategy, record_name, subject_of

THEIRS = {
    "topic": topic_subject_name_strategy,
    "record": record_subject_name_strategy,
    "topic_record": topic_record_subject_name_strategy,
}


@pytest.mark.parametrize("strategy", THEIRS)
def test_a_subject_is_named_as_others_name_it(strategy: Strategy) -> None:
    assert set(THEIRS) == set(STRATEGIES)
    values = SerializationContext("t", MessageField.VALUE)
    assert subject_of(strategy, "t", "out") == THEIRS[strategy](values, "out")
    keys = SerializationContext("t", MessageField.KEY)
    assert subject_of(strategy, "t", "out", "key") == THEIRS[strategy](keys, "out_key")


def test_the_name_of_an_output_becomes_one_that_avro_allows() -> None:
    assert (record_name("a-b.c"), record_name("a-b.c", "key")) == ("a_b_c", "a_b_c_key")
