"""Kaplan-Meier on bins: the distribution of outcomes from masses of seen and cut-off ones."""

from __future__ import annotations

import numpy as np

from poolrl.checks import FloatArray

# Mass so small that data always outweighs it, but enough to continue where no mass is at risk any more.
WHISPER = 1e-6


def kaplan_meier(masses: FloatArray, law: FloatArray) -> FloatArray:
    """Probabilities (..., bins) from masses (..., kinds, bins) of seen and cut-off outcomes.

    Outcome and cut-off level are independent, and each is spread evenly inside a bin. With hazards a and b, the share
    s = a − ab/2 of those at risk is seen in the bin, and c = b − ab/2 is cut off. Solved for a,

        a = u − √(u² − 2s) = 2s / (u + √(u² − 2s)),   u = 1 + (s − c)/2

    Without a cut-off this is s, as usual. It is close to the actuarial rule s / (1 − c/2), but exact in the last bins
    too. Where nothing is at risk any more, the hazards of `law` (..., bins) continue.
    """
    total = masses.sum(axis=(-2, -1))[..., None]
    whisper = law * np.maximum(total, 1.0) * WHISPER
    seen = masses[..., 0, :] + whisper
    if masses.shape[-2] == 1:
        return np.asarray(seen / seen.sum(axis=-1, keepdims=True))
    cut = masses[..., 1, :]
    at_risk = np.cumsum((seen + cut)[..., ::-1], axis=-1)[..., ::-1]
    safe = np.where(at_risk > 0, at_risk, 1.0)
    s, c = seen / safe, cut / safe
    u = 1 + (s - c) / 2
    hazard = np.clip(2 * s / (u + np.sqrt(np.maximum(u * u - 2 * s, 0.0))), 0.0, 1.0)
    survival = np.cumprod(1 - hazard, axis=-1)
    before = np.concatenate([np.ones_like(survival[..., :1]), survival[..., :-1]], axis=-1)
    weights = before * hazard
    # Outcomes beyond the last bin exceed every level that was tried. Only "at least that" is known of them.
    weights[..., -1] += survival[..., -1]
    return np.asarray(weights)


def refined(weights: FloatArray, law: FloatArray) -> FloatArray:
    """Share every bin's weight (..., B) between the finer bins of `law` (..., B · parts), in its proportions.

    No bin gains or loses weight. Where the law has nothing, the parts are equal.
    """
    parts = law.shape[-1] // weights.shape[-1]
    inside = law.reshape(*weights.shape, parts)
    total = inside.sum(axis=-1, keepdims=True)
    # A share of almost nothing would be rounding, not shape.
    shares = np.where(total > 1e-12, inside / np.where(total > 1e-12, total, 1.0), 1 / parts)
    return np.asarray((weights[..., None] * shares).reshape(law.shape))
