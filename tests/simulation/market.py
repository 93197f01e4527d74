"""Seeds of a federation: what its participants agree on, what load costs them, and the rush that
makes one of them sell a stage to another; in some seeds that one gets load of its own meanwhile,
and sells the stage on to a third.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from anabranch.adapters.signing import SigningKey
from anabranch.pipeline.model import AgentPolicy, Federation, Pipeline
from anabranch.protocol.federation.contracts import AuditClauses, Contract, MoveClauses
from anabranch.protocol.federation.stage_moves import node_of, task_of
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.stage.owners_checkpoint import Transfer
from harness.trading_world import terms
from simulation import dishonest, drawing
from simulation.options import NAME, ON_NEW, ON_THIRD, Options, StageOptions
from simulation.workload import BASE_MS

BUYER: Final = "north"
SELLER: Final = "south"
THIRD: Final = "west"
"""To whom the seller may sell on."""
STRANGER: Final = "mallory"
"""A participant with a key that counts, and no contract."""
FEDERATION: Final = "tolls"
AUDITOR: Final = "auditor"
METER_MS, SETTLE_MS = 1_000, 2_000
_RESALE_CHANCE: Final = 0.25
_LIES_CHANCE: Final = 0.3
_MADE_UP_CHANCE: Final = 0.1
HOLDS_ALL: Final = "claims to hold all of its input"
HOLDS_NOTHING: Final = "claims to hold nothing of its input"
_CHECKPOINT_CHANCE: Final = 0.4
_HOSTILE_STORE_CHANCE: Final = 0.5
_LOAD_OF_OWN: Final = (40, 55)
"""Units of the seller's own while it has a rush, of the 60 that it can bear."""


@dataclass(frozen=True)
class MarketOptions(Options):
    """Options of a seed of this family."""

    corners: tuple[tuple[int, int], ...] = ()
    """Cost of load for the buyer (``costs.CornerCost``); empty: a queue's cost."""
    fixed_price: int = 40
    delta: int = 25
    min_hold_ms: int = 1_500
    deadline_ms: int = 4_000
    sample_ppm: int = 200_000
    has_auditor: bool = False
    dishonest: str = ""
    """Dishonesty of one participant (``dishonest.KINDS``, or ``OF_RESALES``); mostly none."""
    claims: int | None = None
    """Bucket up to which the sellers' nodes claim, in their heartbeats, to hold their input for
    good; None: they tell the truth. Nothing may come of it.
    """
    sellers_rush: tuple[int, int, int] = (0, 0, 0)
    """From the first of these buckets on, and before the second, the seller has so many units of
    load of its own; counted from the beginning. No units: there are but two participants.
    """

    @property
    def moved(self) -> str:
        """The replica of the stage that is for sale."""
        return f"{self.stages[self.seed % len(self.stages)].name}.0"

    @property
    def is_resale(self) -> bool:
        """The seller may sell on what it has bought."""
        return self.sellers_rush[2] > 0

    @property
    def new_nodes(self) -> dict[str, str]:
        """Nodes that the sellers run for the stage."""
        return {ON_NEW: node_of(SELLER)} | ({ON_THIRD: node_of(THIRD)} if self.is_resale else {})

    @property
    def sold(self) -> str:
        """The stage that is for sale."""
        return self.moved.partition(".")[0]

    @property
    def task(self) -> str:
        """Its name in the contract."""
        return task_of(NAME, self.sold)

    @property
    def is_honest(self) -> bool:
        """None of them does what it must not."""
        return not self.dishonest

    @property
    def lie(self) -> str:
        """Return the probe for the lie that sellers' heartbeats tell; empty: they tell none."""
        return "" if self.claims is None else HOLDS_ALL if self.claims else HOLDS_NOTHING

    @property
    def traders(self) -> tuple[str, ...]:
        """Participants with an agent and a contract broker."""
        return (BUYER, SELLER, THIRD) if self.is_resale else (BUYER, SELLER)

    @property
    def auditor(self) -> str:
        """Participant whose findings count; empty: there is none, and nothing is kept for
        audits.
        """
        return AUDITOR if self.has_auditor else ""

    @property
    def spoils(self) -> str:
        """The stage that is for sale, if its seller makes wrong rows of it."""
        return self.sold if self.dishonest in dishonest.SPOILT_BY else ""

    @property
    def spoiler(self) -> str:
        """The node that does so; empty: none."""
        return self.new_nodes.get(dishonest.SPOILT_BY.get(self.dishonest, ""), "")

    @property
    def federation(self) -> Federation:
        """Federation as in the buyer's pipeline file."""
        return Federation(
            name=FEDERATION,
            participant=BUYER,
            auditor=self.auditor,
            partners={name: [self.sold] for name in self.traders if name != BUYER},
            agent=_policy(24, 150, self.corners),
        )

    def contracts(self) -> tuple[Contract, ...]:
        """Return the contracts that are signed when the run begins, the first buyer's first."""
        first = self._contract()
        name = f"{SELLER}-{THIRD}"
        second = replace(first, contract_id=name, buyer=SELLER, seller=THIRD)
        return (first, second) if self.is_resale else (first,)

    def _contract(self) -> Contract:
        text = terms(
            BASE_MS,
            self.task,
            fixed_price=self.fixed_price,
            delta=self.delta,
            min_hold_ms=self.min_hold_ms,
            moving=MoveClauses(
                Transfer.CHECKPOINT if self.has_store else Transfer.REBUILD, self.deadline_ms
            ),
            audit=AuditClauses(METER_MS, 100_000, self.sample_ppm, SETTLE_MS),
        )
        return replace(text, quality=replace(text.quality, delay_ms_max=2_000))

    def key(self, participant: str) -> SigningKey:
        """Return a participant's key, the same in every run of the seed."""
        secret = hashlib.blake2b(f"{self.seed}/{participant}".encode(), digest_size=32)
        return SigningKey(participant, "1", secret.digest())


def sellers_pipeline(options: MarketOptions, seller: str) -> Pipeline:
    """Return a seller's own pipeline, which has no stage: its agent takes those of others."""
    return Pipeline(
        name=seller,
        path=Path(f"{seller}.yaml"),
        bucket_ms=options.bucket_ms,
        max_delay_ms=options.max_delay_ms,
        partitions=options.partitions,
        sources={},
        stages={},
        outputs={},
        federation=Federation(
            name=FEDERATION,
            participant=seller,
            auditor=options.auditor,
            hosts={NAME: Path("pipeline.yaml")},
            agent=_policy(60 if seller == SELLER else 100, 150, ()),
        ),
    )


def _policy(
    capacity_units: int, scale_micro: int, corners: tuple[tuple[int, int], ...]
) -> AgentPolicy:
    return AgentPolicy(
        capacity_units=capacity_units,
        scale_micro=scale_micro,
        corners=corners,
        offer_every_ms=400,
        answer_within_ms=900,
        rest_ms=600,
        backoff_ms=3_000,
    )


def draw(seed: int) -> MarketOptions:
    """Draw the options of a seed: calm, a rush, and calm until long after healing."""
    rng = random.Random(f"{seed}/market")
    plain = drawing.by_chance(seed, stages_max=1)
    count, bucket_ms = rng.choice((1, 1, 2)), 250
    stages: list[StageOptions] = []
    for number in range(count):
        stages.append(
            StageOptions(
                name=f"s{number}",
                reads=(stages[-1].name,) if stages else ("a",),
                operator=rng.choice(("map", "sum", "both", "later")),
                replicas=1,
                is_batch_safe=rng.random() < 0.7,
                policy=rng.choice(("process", "process", "suspend")),
            )
        )
    sold = seed % count
    stages[sold] = replace(stages[sold], ha="upstream_backup", is_batch_safe=True)
    begins = rng.randint(4, 8)
    ends = begins + rng.randint(20, 28)
    buckets = ends + rng.randint(34, 40)
    fixed_price, delta = rng.choice(((40, 25), (30, 10), (22, 0)))
    drawn = replace(
        plain,
        sources=("a",),
        source_partitions=1,
        bucket_ms=bucket_ms,
        max_delay_ms=2_500,
        buckets=buckets,
        rows_max=2,
        rush=(begins, ends, rng.choice((5, 6, 8))),
        idle_ms=None,
        stages=tuple(stages),
        is_live=rng.random() < 0.4,
        is_upsert=False,
        has_manager=rng.random() < 0.7,
        heal_ms=(ends + rng.randint(10, 14)) * bucket_ms,
        snapshot_every=rng.choice((10_000, 10_000, 60)),
        seen_wait_ms=10_000,
        hostile_percent=0,
        late="dead_letter",
    )
    corners = rng.choice(((), ((0, 2), (8, 70))))
    min_hold_ms, deadline_ms = rng.choice((0, 1_500, 3_000)), rng.choice((3_000, 5_000))
    is_audited, wrong = rng.random() < 0.3, ""
    if rng.random() < 0.3:
        wrong = rng.choice(dishonest.KINDS)
    made = MarketOptions(
        **vars(drawn),
        corners=corners,
        fixed_price=fixed_price,
        delta=delta,
        min_hold_ms=min_hold_ms,
        deadline_ms=deadline_ms,
        sample_ppm=rng.choice((200_000, 500_000)),
        has_auditor=is_audited or wrong in (*dishonest.SPOILS, dishonest.AUDITOR_CHOOSES),
        dishonest=wrong,
    )
    made = _by_checkpoint(made)
    if random.Random(f"{seed}/resale").random() < _RESALE_CHANCE:
        made = _with_a_third(made)
    lies = random.Random(f"{seed}/claims")
    if made.is_honest and random.Random(f"{seed}/epochs").random() < _MADE_UP_CHANCE:
        made = replace(made, dishonest=dishonest.MAKES_UP_EPOCHS)
    return (
        replace(made, claims=lies.choice((0, BUCKET_MAX))) if lies.random() < _LIES_CHANCE else made
    )


def _by_checkpoint(options: MarketOptions) -> MarketOptions:
    """Let the stage that is for sale go by its owner's checkpoint in some seeds, of whose store not
    all can be trusted.
    """
    rng = random.Random(f"{options.seed}/transfer")
    if rng.random() >= _CHECKPOINT_CHANCE:
        return options
    stages = tuple(
        replace(stage, by_checkpoint=stage.name == options.sold) for stage in options.stages
    )
    hostile = rng.random() < _HOSTILE_STORE_CHANCE
    return replace(options, stages=stages, has_store=True, store_is_hostile=hostile)


def _with_a_third(options: MarketOptions) -> MarketOptions:
    """Let the rush last longer, and give the seller load of its own within it, or beyond
    its end.
    """
    rng = random.Random(f"{options.seed}/third")
    begins, _, factor = options.rush
    own_begins = begins + rng.randint(16, 24)
    own_ends = own_begins + rng.randint(20, 28)
    ends = own_ends + rng.randint(16, 26)
    if rng.random() < 0.5:  # what is sold on goes home from there
        ends, own_ends = own_begins + rng.randint(16, 24), own_begins + rng.randint(40, 48)
    last = max(ends, own_ends)
    wrong = rng.choice(dishonest.OF_RESALES) if rng.random() < 0.3 else ""
    return replace(
        options,
        rush=(begins, ends, factor),
        sellers_rush=(own_begins, own_ends, rng.randint(*_LOAD_OF_OWN)),
        buckets=last + rng.randint(34, 40),
        heal_ms=(last + rng.randint(10, 14)) * options.bucket_ms,
        has_auditor=rng.random() < 0.3 or wrong in dishonest.SPOILT_BY,
        dishonest=wrong,
    )
