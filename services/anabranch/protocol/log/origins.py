"""Where does what a writer has closed come from?

Theory of operation. Some decisions of a start need more of the stage's own log than its end:
whether a stage has ever made anything, with what its newest chain begins
(``protocol.stage.beginning``), which function made the last results, and on which nodes
(``protocol.stage.comparison``). These facts are few, and each follows from the facts before a record
and that record. So the log state carries them for each writer, and a log snapshot says them: whoever
begins to read there knows them too.

Invariants:
    OG1 the facts depend on the accepted stable records of the writer alone, and on the plans of
        their epochs.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.log.records import BoundaryRecord, MadeOn, Origin

NODE_CHANGES_MAX: Final = 8
"""So many changes of a writer's node are remembered: of what is before nobody is known to have made
it.
"""


def says_late_start(record: BoundaryRecord) -> bool:
    """Whether a record leaves out the buckets up to its ``closed``, as the first of its chain."""
    return record.prev is None and record.base is None and bool(record.missing) and not record.parts


def origin_after(
    before: Origin, record: BoundaryRecord, closed: int, fingerprint: str, node: str = ""
) -> Origin:
    """The facts after a stable record.

    Args:
        before: Those before it.
        record: Was accepted.
        closed: The last bucket that the writer had closed before it.
        fingerprint: Of the plan of its epoch.
        node: On which its epoch began.
    """
    is_first = record.prev is None
    is_late = says_late_start(record)
    is_news = record.closed > closed
    is_other = is_news and before.made_by != fingerprint
    made_on = before.made_on
    if is_news and node != (made_on[-1].node if made_on else ""):
        made_on = (*made_on, MadeOn(node, closed))[-NODE_CHANGES_MAX:]
    gap, open_upto = before.gap, before.open_upto
    if is_first:
        gap, open_upto = record.closed if record.missing else None, closed
    return Origin(
        tip_by=fingerprint,
        made_by=fingerprint if is_news else before.made_by,
        made_after=closed if is_other else before.made_after,
        gap=gap,
        open_upto=0 if is_news else open_upto,
        late_upto=max(before.late_upto, record.closed) if is_late else before.late_upto,
        has_results=before.has_results or not is_late,
        made_on=made_on,
    )
