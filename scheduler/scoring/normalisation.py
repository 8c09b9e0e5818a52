"""How raw scores become scores of 0 to 100, with the integer arithmetic of kube-scheduler."""

from typing import Final

import numpy as np

from scheduler.scoring.candidates import Scores

BEST: Final = 100
"""The score of a node that is as good as any."""


def relative_to_highest(raw: Scores, *, is_better: bool) -> Scores:
    """Scale raw scores of at least 0 by their maximum; unless a high one `is_better`, 0 becomes 100.

    kube-scheduler's DefaultNormalizeScore (pkg/scheduler/framework/plugins/helper/normalize_score.go).
    """
    highest = raw.max(initial=0)
    scaled = BEST * raw // highest if highest else raw
    return scaled if is_better else BEST - scaled


def scaled_to_range(raw: Scores) -> Scores:
    """Scale raw scores, so that the lowest becomes 0 and the highest 100; equal ones all become 0."""
    lowest = raw.min(initial=raw[0] if len(raw) else 0)
    width = raw.max(initial=lowest) - lowest
    if not width:
        return np.zeros_like(raw)
    scaled: Scores = (float(BEST) * ((raw - lowest) / width)).astype(np.int64)
    return scaled
