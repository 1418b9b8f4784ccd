"""The assumptions before any data: every constant of the estimators that is not about speed, with its reason.

Each prior is broad enough that data outweighs it where there is data, and all are public. Shares and sizes are those of
`docs/notation.md`. The sizes of bins and grids stand in `geometry/resolution.py`.
"""

import numpy as np

# The dictionary of laws, and how well one of them may explain the trees (`shapes`).

# Coefficients of variation of single-peaked laws: from deliveries to a fixed list of customers to intermittent demand.
SPREADS_OF_SHAPES = (0.08, 0.13, 0.2, 0.3, 0.42, 0.6, 0.85, 1.2)
# Two peaks: the higher one's place in multiples of the lower one's, and the lower one's share.
PEAK_RATIOS, PEAK_SHARES, PEAK_SPREADS = (1.7, 2.2, 2.8, 3.6, 4.8, 6.5), (0.3, 0.4, 0.5, 0.6, 0.7), (0.08, 0.16)
# Even between two limits, as orders of somebody who tries things out: half the width, in multiples of the mean.
EVEN_WIDTHS = (0.3, 0.6, 1.0)
# Nothing on some days, else a gamma law: the share of such days.
IDLE_SHARES, IDLE_SPREADS = (0.2, 0.5, 0.8), (0.4, 0.8)
# How common one peak, two peaks, idle days and even laws are, before any data.
USUAL = (0.8, 0.1, 0.05, 0.05)
# Cells seen before any data, of each class.
LOCATED_AND_UNIFORM, ALWAYS_ZERO = (24.0, 1.2), 2.4
# Means below this part of a bin cannot be told apart, means above this many bounds hardly. Nor are means below the last
# share of the bound looked for: shops a thousand times smaller than the bound.
LOWEST_MEAN, HIGHEST_MEAN, LOWEST_SHARE = 0.35, 1.6, 5e-4
# Sampled counts have at least this variance, so that an empty leaf or split is not taken for an impossible one.
LEAST_VARIANCE = 0.25
# No law of the dictionary is exactly true: a bin's share may be off by this part of itself.
MISFIT = 0.2

# The sizes of cells, and days on which nothing happens (`cell_laws`).

# Spreads of log-means: τ between cells, from equal to unrelated, and its most likely value before any data.
CELL_SPREADS = np.array([0.03, 0.06, 0.1, 0.16, 0.25, 0.4, 0.65, 1.2])
USUAL_SPREAD = 0.2
# Before any data: people declare bounds a few times what they usually sell, sometimes ten times.
USUAL_CENTRE, CENTRE_SPREAD = float(np.log(0.3)), 1.2
# A few cells are like no other, and may have any log-mean.
OUTLIERS = 0.01
# Effects are looked for up to this many units of log-mean away, a factor of 150, and this many times their own spread.
FARTHEST_EFFECT, FARTHEST_SPREADS = 5.0, 12.0
LEAST_EFFECT_SPREAD, FIRST_EFFECT_SPREAD = 0.05, 0.5
# Cells seen before any data: all shapes together.
FIRST_SHAPES = 24.0
# A law this unlikely is as good as impossible. It bounds what one cell can say about the others.
LEAST_LIKELIHOOD = 1e-30
# Standard errors beyond which a share is no accident.
NO_ACCIDENT = 3.0
# A step is not idle altogether: then there would be nothing left to explain.
MOST_IDLE = 0.9

# The splits of the trees around their laws (`trees`).

# The standard deviations τ that a split may have around its centre, from zero to any split.
SPLIT_SPREADS = np.concatenate([[0.0], 0.01 * 2.0 ** np.arange(0.0, 6.5, 0.5)])
# How far a split is expected to differ from its centre, before any data.
USUAL_SPLIT_SPREAD = 0.5
# Mass so small that data always outweighs it, but enough to continue where no mass is at risk any more.
WHISPER = 1e-6

# How far the log looked, and the tail beyond (`outcomes`, plans).

# A level is explored if this share of the slots looked at least as far. A price or a bid is named freely: whoever named
# a low one did not do so because of what was left.
EXPLORED, EXPLORED_BY_CHOICE = 0.1, 0.02
# No decision lies further beyond the explored range than by this factor (docs/departures.md, 27).
CLIMB = 1.5
# Less than this share of demand inside the explored range says nothing about the rest, and more leaves no rest.
LEAST_SEEN, MOST_SEEN = 0.02, 0.999
# Points below the end of the range, by their shares of what was seen. Nearer ones would have the noise of one bin.
POINTS = np.array([0.35, 0.5, 0.65])
# The lognormal's spread: neither a spike nor a law without end.
NARROWEST, WIDEST = 0.05, 1.0

# Steps of one season, and the isotonic regression of sides (`estimation`).

# Sizes m of a step that are looked at: from less than half to more than twice the season's.
SIZES_IN_LOGS = 0.05 * np.arange(-16, 17)
SAME_SIZE = len(SIZES_IN_LOGS) // 2
# How far the sizes of steps may differ, and how far they usually do, before any data.
SIZE_SPREADS, USUAL_SIZE_SPREAD = np.array([0.0, 0.03, 0.06, 0.1, 0.16, 0.25, 0.4]), 0.15
# A law that was chosen for a step explains its trees better by luck, by this many nats: about a shape and a size.
LUCK_OF_A_STEP = 1.0
# The first bins, and how many rows the last ones have, at least and beside the noise of their counts.
FEWEST_STATUS_BINS, ROWS_OF_BIN, NOISES_OF_BIN = 4, 40, 10
# Bins seen before any data, when it is learned how far shares lie off; and how often that is learned anew.
USUAL_BINS, EM_ROUNDS = 4.0, 20
# Where nothing was tried, a share or a cell still has some weight, so that it has a place, and each cell a law.
LEAST_WEIGHT = 1e-9
