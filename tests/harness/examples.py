"""How many examples a property is tried with: each run draws its own, so few in every run are
many in time.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

VARIABLE: Final = "ANABRANCH_TEST_EXAMPLES"
"""Times as many as a property asks for. ``make unit`` gives less than one, ``make nightly``
more.
"""

_MIN: Final = 20


def examples(count: int) -> settings:
    """``count`` examples, times what the environment says; without a deadline, which a busy
    machine would miss.
    """
    return settings(
        max_examples=max(_MIN, round(count * float(os.environ.get(VARIABLE, "1")))), deadline=None
    )
