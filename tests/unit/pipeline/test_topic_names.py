"""Names of internal topics."""

from __future__ import annotations

import pytest

from anabranch.pipeline.topic_names import FederationTopics, TopicNames, index_prefix


def test_a_stream_of_another_pipeline_is_called_as_it_is_there() -> None:
    names = TopicNames("here", (("speeds_at_south", "south", "speeds"),))
    assert names.boundaries("speeds_at_south") == "south.speeds.boundaries"
    assert names.blocks("own", "0") == "here.own.blocks.0"


def test_the_owner_of_a_federations_topic_is_in_its_name() -> None:
    topics = FederationTopics("roads")
    assert topics.owner_of(topics.keys("north")) == ("keys", "north")
    assert topics.owner_of(topics.contract("north-south")) == ("contract", "north-south")
    assert topics.owner_of(topics.offers("north-south")) == ("offers", "north-south")


@pytest.mark.parametrize(
    "topic", ["", "roads.keys.", "roads.keys.North", "roads.prices.north", "rails.keys.north"]
)
def test_what_is_no_topic_of_the_federation_has_no_owner(topic: str) -> None:
    assert FederationTopics("roads").owner_of(topic) == ("", "")


def test_keys_of_the_index_are_apart_from_those_of_others() -> None:
    assert index_prefix("p") == "anabranch:p:"
    assert not index_prefix("pq").startswith(index_prefix("p"))
