"""How finely things are resolved. Each number trades time for accuracy. All are public, and none costs privacy."""

# Bins of a released tree (`Outcomes.level_sizes`): what a small log can fill, and what a huge one without noise can.
FEWEST_BINS, MOST_BINS = 8, 1024
# A distribution is planned on at least this many bins, refined by its shape, whatever the noise allows.
PLANNING_BINS = 512
# Steps of the dictionary's log-means: laws whose means are a tenth apart can hardly be told apart under noise.
LOG_MEAN_STEP = 0.1
# A likelihood of shapes needs no finer bins than this. The trees' own splits go further.
SHAPE_BINS = 64
# Bands of order-up-to levels and of outcomes in the table that tests dependence. With six, and a bound ten times too
# large, a chain's shops stand in two of them, and little is left to compare; with more, noise grows.
JOINT_BANDS = 8
# Stock that is left is summed in whole parts of the bound. Rounding errors of many rows cancel.
LEFT_PARTS = 32
# Where products are said to sell much or little together: edges to choose from, and whole parts of a row's pairs.
TOGETHER_BANDS, TOGETHER_PARTS = 256, 128
# Points of an axis of separable values: where the action alone decides what happens next, and where the state counts
# too, so that there are as many squared.
ACTION_POINTS, STATE_POINTS = 257, 65
# Points of the second look between two points of the axis; odd, so that the axis' own point is among them.
FINER_POINTS = 33
# Values without structure: a grid while it stays small, else the paper's rings.
GRID_BINS, RING_COUNT = 20, 100
# Points that are drawn for a ring. A pivoted QR keeps the best conditioned of them.
RING_DRAWS = 64
# Outcomes that every node of a partition meets, quasi-random; a power of two, as Sobol's sequence wants.
OUTCOME_DRAWS = 256
# Actions that are tried in every state: along one axis, at least and at most; in more dimensions, as a power of two.
FEWEST_ACTIONS, MOST_ACTIONS, ACTION_DRAWS_LOG2 = 201, 2001, 8
# Benchmarks (SAA, the optimum, the data-free policy) are resolved finer than what is compared with them.
BENCHMARK_BINS, BENCHMARK_STATE_BINS, BENCHMARK_DRAWS = 512, 128, 4096
BENCHMARK_GRID_BINS, BENCHMARK_RINGS = 50, 200
# The true distribution of simulated demand, finer still: gaps to it are exact.
TRUTH_BINS = 1024
