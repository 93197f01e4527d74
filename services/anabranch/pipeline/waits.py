"""Position of a stage in its pipeline, as far as its waits for input depend on it: depth, outputs
behind it, readers of its tentative results, out-of-orderness.

All functions visit each stage once. A deep pipeline whose stages read several others has too many
paths to walk each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.pipeline.durations import format_ms, readable_ms
from anabranch.protocol.edge.ingestion import (
    APPEND_OPEN_EVERY_MS,
    PENDING_PARTS_HOLD,
    PENDING_PARTS_STOP,
    open_parts_expected,
)
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.buckets import buckets_of
from anabranch.protocol.stage.availability import (
    Ahead,
    Availability,
    InputLags,
    Policy,
    Waits,
    delay_bound_ms,
    policy_of,
    strictest,
    waits_of,
)
from anabranch.protocol.stage.load_control import WORK_LEAST_MS, shed_bound_ms
from anabranch.protocol.stage.replica import INPUT_PARTS_MAX
from anabranch.protocol.stage.scheduling import quiet_every_ms
from anabranch.protocol.stage.utility import IN_PROPORTION, Curve, Qos

if TYPE_CHECKING:
    from anabranch.pipeline.model import Binding, Pipeline, Source


def depth(pipeline: Pipeline, stage: str) -> int:
    """Return the number of stages before ``stage`` on the longest path to a source."""
    found: dict[str, int] = {}
    for name in pipeline.order():
        found[name] = max(
            (_hops(pipeline, stream, found) for stream in pipeline.inputs(name)), default=0
        )
    return found[stage]


def _hops(pipeline: Pipeline, stream: str, depths: Mapping[str, int]) -> int:
    """Return the number of stages from a source to ``stream``, its own included. ``depths``: of
    stages, as from ``depth``.
    """
    if stream in pipeline.bindings:
        return pipeline.bindings[stream].hops
    return 1 + depths[stream] if stream in depths else 0


def strictest_output(pipeline: Pipeline, stage: str) -> Ahead | None:
    """Return the output behind ``stage`` that leaves it the least time to wait, of those that show
    tentative results; None if nothing reads these. A stage that other pipelines may read counts as
    an output with the pipeline's ``max_delay``, under the name of the stage.
    """
    found: dict[str, Ahead | None] = {}
    own: dict[str, list[Ahead]] = {
        name: [Ahead(pipeline.max_delay_ms, 1, name)] for name in pipeline.publish_ms
    }
    for name, output in pipeline.outputs.items():
        if output.live is not None:
            ahead = Ahead(pipeline.max_delay_of(name), 1, name)
            own.setdefault(output.stage, []).append(ahead)
    for name in reversed(pipeline.order()):
        behind = [found[reader] for reader in pipeline.readers(name)]
        found[name] = strictest(
            [*own.get(name, ()), *(each.from_before() for each in behind if each is not None)]
        )
    return found[stage]


def has_live(pipeline: Pipeline, stage: str) -> bool:
    """Return whether anything reads tentative results of ``stage``: an output of it or of a later
    stage has a live topic, or another pipeline may read it.
    """
    return strictest_output(pipeline, stage) is not None


def _reached(pipeline: Pipeline, stage: str) -> set[str]:
    """Return ``stage`` and all stages that read its results, directly or through others."""
    seen, left = {stage}, [stage]
    while left:
        new = set(pipeline.readers(left.pop())) - seen
        seen |= new
        left += new
    return seen


def quiet_ms(pipeline: Pipeline, stage: str) -> int:
    """Return the shortest time, in ms, from a batch of ``stage`` to one without results."""
    return quiet_every_ms(
        is_read=bool(pipeline.readers(stage)) or stage in pipeline.publish_ms,
        wait_ms=waits(pipeline, stage).first_ms,
    )


def normal_ms(pipeline: Pipeline, stage: str) -> int:
    """Return the time, in ms, from the first sign of a bucket to its end without failures: its
    width, the sources' out-of-orderness, and the hops of deeper inputs.
    """
    return _shallow_ms(pipeline, stage) + HOP_MS * max(_deeper(pipeline, stage).values())


def lags(pipeline: Pipeline, stage: str) -> InputLags:
    """Return the measurement of how much later than the first input the other inputs of ``stage``
    close a bucket.
    """
    return InputLags(_deeper(pipeline, stage), _shallow_ms(pipeline, stage))


def availability(pipeline: Pipeline, stage: str) -> Availability:
    """Return the state of ``stage``'s waits for input, before anything has been read."""
    inputs = pipeline.inputs(stage)
    return Availability(
        inputs,
        waits(pipeline, stage),
        policy(pipeline, stage),
        lags(pipeline, stage),
        elsewhere=[stream for stream in inputs if pipeline.cluster_of(stream)],
        before_ms={
            name: waits(pipeline, name).first_ms for name in inputs if name in pipeline.stages
        },
    )


def policy(pipeline: Pipeline, stage: str) -> Policy:
    """Return what ``stage`` does while input is missing."""
    return policy_of(pipeline.stages[stage].on_missing_input, is_seen=has_live(pipeline, stage))


def waits(pipeline: Pipeline, stage: str) -> Waits:
    """Return how long ``stage`` waits for a bucket: as long as the strictest output allows. Where
    nothing reads tentative results, that never shows.
    """
    ahead = strictest_output(pipeline, stage) or Ahead(pipeline.max_delay_ms, 1, stage)
    return waits_of(
        ahead.max_delay_ms, normal_ms(pipeline, stage), depth(pipeline, stage), ahead.height
    )


def output_wait_ms(pipeline: Pipeline, output: str) -> int:
    """Return how long ``output`` waits for a bucket of its stage before its live topic shows a
    tentative one, in ms from the start of the bucket's timer. No shorter than the stage's wait.
    """
    stage = pipeline.outputs[output].stage
    own = waits_of(
        pipeline.max_delay_of(output), normal_ms(pipeline, stage), depth(pipeline, stage), 1
    )
    return own.first_ms


def bound_ms(pipeline: Pipeline, stage: str) -> int:
    """Return the maximum delay of the results of ``stage``, in ms, whatever input is missing: that
    of the strictest output behind it.
    """
    ahead = strictest_output(pipeline, stage)
    max_delay_ms = pipeline.max_delay_ms if ahead is None else ahead.max_delay_ms
    return normal_ms(pipeline, stage) + max_delay_ms


def output_bound_ms(pipeline: Pipeline, output: str) -> int:
    """Return the maximum delay of the results of ``output``, in ms, whatever input is missing."""
    stage = pipeline.outputs[output].stage
    return normal_ms(pipeline, stage) + pipeline.max_delay_of(output)


def qos_of(pipeline: Pipeline, output: str) -> Qos:
    """Return the quality-of-service functions of ``output``. Where the file states none, the knee
    of the latency is the delay that is promised.
    """
    found = pipeline.outputs[output]
    return Qos.usual(output_bound_ms(pipeline, output)) if found.qos is None else found.qos


def describe(pipeline: Pipeline) -> list[str]:
    """Return one sentence per stage, for people: what it does while an input is missing."""
    found = []
    for stage in pipeline.order():
        chosen, wait = policy(pipeline, stage), waits(pipeline, stage)
        if chosen is Policy.SUSPEND:
            why = (
                "on_missing_input is suspend"
                if has_live(pipeline, stage)
                else "no output of it has a live topic"
            )
            found.append(f"stage {stage}: waits for missing input without limit ({why})")
            continue
        later = wait.next_ms if chosen is Policy.PROCESS else wait.first_ms
        found.append(
            f"stage {stage}: continues without a missing input after {wait.first_ms} ms,"
            f" tentatively; then {later} ms per bucket"
        )
    return [*found, *_describe_outputs(pipeline)]


def _describe_outputs(pipeline: Pipeline) -> list[str]:
    """Return one sentence per live topic: what it shows while an input is missing."""
    found = []
    for name, output in pipeline.outputs.items():
        if output.live is None or output.stage not in pipeline.stages:
            continue
        if policy(pipeline, output.stage) is Policy.SUSPEND:
            found.append(f"output {name}: shows nothing tentative, as its stage waits")
            continue
        wait_ms = output_wait_ms(pipeline, name)
        held_ms = wait_ms - waits(pipeline, output.stage).first_ms
        held = f" ({held_ms} ms after its stage)" if held_ms else ""
        found.append(
            f"output {name}: max_delay {pipeline.max_delay_of(name)} ms; shows tentative results"
            f" of a failure that lasts {wait_ms} ms or longer{held}"
        )
    return found


Losses = list[tuple[Curve, frozenset[str]]]
"""Utility of outputs by lost rows, and the other stages on the ways from one stage to each."""


def losses(pipeline: Pipeline, stage: str) -> Losses:
    """Return, of each output with a live topic that shows results made from those of ``stage``, and
    of each published stage on the way (its readers state no utility here): its utility by lost
    rows, and the other stages on the ways to it through ``stage``.
    """
    seen = _reached(pipeline, stage)
    before = stages_before(pipeline, stage)
    ends = [
        (qos_of(pipeline, name).loss, output.stage)
        for name, output in pipeline.outputs.items()
        if output.live is not None and output.stage in seen
    ]
    ends += [(IN_PROPORTION, end) for end in sorted(seen & pipeline.publish_ms.keys())]
    return [
        (curve, frozenset(before | {s for s in seen if end in _reached(pipeline, s)} - {stage}))
        for curve, end in ends
    ]


def stages_before(pipeline: Pipeline, stage: str) -> set[str]:
    """Return all stages whose results ``stage`` reads, directly or through others."""
    return {each for each in pipeline.stages if stage in _reached(pipeline, each)} - {stage}


def may_shed(pipeline: Pipeline, stage: str) -> bool:
    """Return whether ``stage`` may leave out rows of its tentative results."""
    is_seen = policy(pipeline, stage) is not Policy.SUSPEND
    return is_seen and pipeline.stages[stage].shed.kind != "off"


def describe_shedding(pipeline: Pipeline) -> list[str]:
    """Return one sentence for each stage whose file says that it may leave out rows while it is
    overloaded, for people. The first shard of a stage stands for all of them.
    """
    found = []
    for name in pipeline.order():
        stage = pipeline.stages[name]
        if stage.shed.kind == "off" or not stage.is_whole_or_first_shard:
            continue
        if not may_shed(pipeline, name):
            found.append(
                f"stage {whole_of(name)}: shed has no effect: no output with a live topic shows its"
                " results, so there are no tentative ones. Add live: {topic: NAME} to an output, or"
                " leave shed out"
            )
            continue
        inputs = ", ".join(stage.shed.by)
        kept = {
            "rows": f"a part of the rows of {inputs}, by chance",
            "keys": "all rows of some keys, "
            + "; ".join(f"{each} by {', '.join(key)}" for each, key in stage.shed.by.items()),
            "by": f"those rows of {inputs} for which {stage.shed.expression} is largest",
            "transform": f"those rows of {inputs} that {stage.shed.function} finds most important",
        }[stage.shed.kind]
        found.append(f"stage {whole_of(name)}: while it is overloaded, keeps {kept}, tentatively")
    return found


def too_short(pipeline: Pipeline) -> list[str]:
    """Return a sentence for every stage that cannot keep within ``max_delay`` of its strictest
    output.
    """
    found = []
    for stage in pipeline.order():
        ahead = strictest_output(pipeline, stage)
        if ahead is None or policy(pipeline, stage) is Policy.SUSPEND:
            continue
        least_ms = delay_bound_ms(ahead.height)
        if ahead.max_delay_ms < least_ms:
            found.append(
                f"stage {stage}: max_delay of {ahead.output} is {ahead.max_delay_ms} ms, but"
                f" {ahead.height} stage(s) from it to the output need {least_ms} ms: new"
                " results may come later than max_delay while input is missing"
            )
    return found


def too_short_to_shed(pipeline: Pipeline) -> list[str]:
    """Return a sentence for every stage with ``shed`` whose batches get so little time in an
    overload that they would hardly have rows where batches take long whatever they hold. The first
    shard of a stage stands for all of them.
    """
    found = []
    for name, stage in pipeline.stages.items():
        ahead = strictest_output(pipeline, name) if may_shed(pipeline, name) else None
        if ahead is None or not stage.is_whole_or_first_shard:
            continue
        least_ms = shed_bound_ms(depth(pipeline, name), ahead.height)
        if ahead.max_delay_ms < least_ms:
            found.append(
                f"stage {whole_of(name)}: max_delay of {ahead.output} leaves each batch less than"
                f" {WORK_LEAST_MS} ms while the stage is overloaded; where batches take about that"
                " long whatever they hold, nearly all rows are left out: allow"
                f" {least_ms - ahead.max_delay_ms} ms more"
            )
    return found


def worth_less(pipeline: Pipeline) -> list[str]:
    """Return a sentence for every output whose results may come so late that they are worth less by
    its own ``qos``: nothing sheds rows, and no wait ends, before ``max_delay`` says so.
    """
    found = []
    for name, output in pipeline.outputs.items():
        if output.qos is None:
            continue
        latency, bound = output.qos.latency, output_bound_ms(pipeline, name)
        is_bound = policy(pipeline, output.stage) is not Policy.SUSPEND
        if not is_bound or latency.value(bound) == latency.value(0):
            continue
        knee = latency.knee
        fits_ms = pipeline.max_delay_of(name) - (bound - knee)
        remedy = (
            f"give the output max_delay: {format_ms(fits_ms)}"
            if fits_ms > 0
            else f"they take about {bound - pipeline.max_delay_of(name)} ms without any failure"
        )
        found.append(
            f"output {name}: its results may come {bound} ms after their bucket, and by its qos"
            f" they are worth less after {knee} ms: {remedy}"
        )
    return found


def too_open(pipeline: Pipeline) -> list[str]:
    """Return a sentence for every source whose out-of-orderness keeps more buckets open than its
    limit of pending parts allows.
    """
    found = []
    for source in pipeline.sources.values():
        parts = open_parts_expected(pipeline.bucket_ms, source.out_of_orderness_ms)
        if parts < PENDING_PARTS_STOP:
            continue
        short_ms = PENDING_PARTS_HOLD * min(pipeline.bucket_ms, APPEND_OPEN_EVERY_MS)
        wide_ms = -(-source.out_of_orderness_ms // PENDING_PARTS_HOLD)
        remedy = f"make out_of_orderness {short_ms} ms or shorter"
        if wide_ms <= APPEND_OPEN_EVERY_MS:
            remedy += f", or bucket {wide_ms} ms or wider"
        found.append(
            f"source {source.name}: out_of_orderness ({source.out_of_orderness_ms} ms) keeps"
            f" {source.out_of_orderness_ms // pipeline.bucket_ms} buckets of"
            f" {pipeline.bucket_ms} ms open: with data in all of them that is {parts} parts or"
            f" more, and from {PENDING_PARTS_STOP} on nothing is read. Unless the source has long"
            f" pauses, {remedy}"
        )
    return found


def too_long(pipeline: Pipeline) -> list[str]:
    """Return a sentence for every stage whose new results stop in a long failure of one input,
    since it keeps what the others bring. A source whose ``idle_timeout`` is shorter closes its
    oldest buckets before; another owner's stream does not, since its log is the owner's.
    """
    found = []
    for name in pipeline.order():
        if not pipeline.stages[name].is_whole_or_first_shard:
            continue
        others = len(pipeline.inputs(name)) - 1
        if not others:
            continue  # Without its only input a stage keeps nothing.
        full_ms = INPUT_PARTS_MAX // (others * pipeline.partitions) * pipeline.bucket_ms
        roots = _roots(pipeline, name)
        open_sources = [
            each
            for each in roots
            if each in pipeline.sources
            and (pipeline.sources[each].idle_timeout.source_ms or full_ms) >= full_ms
        ]
        foreign = [each for each in roots if each in pipeline.bindings]
        advice = []
        if open_sources:
            advice.append(
                f"a shorter idle_timeout of {', '.join(open_sources)}, as {{source:"
                f" {format_ms(full_ms // 2)}}}, closes the oldest buckets before"
            )
        if foreign:
            advice.append(f"only the owner can close buckets of {', '.join(foreign)}")
        if advice:
            found.append(
                f"stage {whole_of(name)}: if an input is missing for {readable_ms(full_ms)}, or"
                f" less with several parts in a bucket, new results stop; {'; '.join(advice)}"
            )
    return found


def _roots(pipeline: Pipeline, stage: str) -> list[str]:
    """Return the sources and bindings that ``stage`` is made from, in the file's order."""
    seen, left = {stage}, [stage]
    while left:
        new = set(pipeline.inputs(left.pop())) - seen
        seen |= new
        left += new & pipeline.stages.keys()
    return [
        each
        for each in (*pipeline.sources, *pipeline.bindings)
        if seen.intersection(pipeline.input_streams(each))
    ]


def _shallow_ms(pipeline: Pipeline, stage: str) -> int:
    """Return ``normal_ms`` of the shallowest input."""
    return pipeline.bucket_ms + out_of_orderness_ms(pipeline, stage)


def _deeper(pipeline: Pipeline, stage: str) -> dict[str, int]:
    """Return, per input, by how many stages its longest path to a source exceeds that of the
    shallowest input.
    """
    reads = pipeline.inputs(stage)
    depths = {name: depth(pipeline, name) for name in reads if name in pipeline.stages}
    found = {name: _hops(pipeline, name, depths) for name in reads}
    shallowest = min(found.values())
    return {name: hops - shallowest for name, hops in found.items()}


def out_of_orderness_ms(pipeline: Pipeline, stage: str) -> int:
    """Return the largest out-of-orderness, in ms, of the sources that ``stage`` is made from."""
    first: dict[str, Source | Binding] = {**pipeline.sources, **pipeline.bindings}
    return max(first[each].out_of_orderness_ms for each in _roots(pipeline, stage))


def horizon_buckets(pipeline: Pipeline, stage: str) -> int | None:
    """Return the state horizon of a stage, in buckets; None: it is not known."""
    horizon_ms = pipeline.stages[stage].state_horizon_ms
    return None if horizon_ms is None else buckets_of(horizon_ms, pipeline.bucket_ms)


def known_horizon_buckets(pipeline: Pipeline, stage: str) -> int:
    """Return the state horizon of a stage, in buckets, as ``protocol.stage.recovery`` uses it; 0:
    there is none, or it is not known.
    """
    return horizon_buckets(pipeline, stage) or 0
