"""From which number on something is said of a run: all levels of its signs (`launch.driver.observe.signs`) and of the
report's rules, each with its unit and its reason.

They hold for a scratch policy on two cores as for a pretrained 7B model on eight GPUs: shares are of episodes or
tokens, and what a policy has of its own (entropy, norms, lengths) is measured against itself.
"""

from __future__ import annotations

from collections.abc import Mapping


class Limit(float):
    """A number, what it is a number of, and why it is this one."""

    unit: str
    why: str

    def __new__(cls, value: float, unit: str, why: str) -> Limit:
        limit = super().__new__(cls, value)
        limit.unit, limit.why = unit, why
        return limit


EPISODES, EPISODES_LESS, GROUPS, NATS = "of the episodes", "episodes", "of the groups", "nats a token"
FIRST, REWARDS = "of the stage's first entropy", "of the distance between the lowest and the highest reward"

# -- episodes ----------------------------------------------------------------------------------------------------------
CUT = Limit(0.2, EPISODES, "a limit that one answer in five runs into decides what is learned, long before it cuts all")
CUT_FALLS = Limit(1.5, "deviations of chance", "a policy that learns to end its answers in time needs no other limit")
CUT_OVER = Limit(500, EPISODES_LESS, "of the newest steps: small ones go up and down, of 500 a fifth is 0.2 +- 0.02")
CUT_GREEDY = Limit(0.1, EPISODES, "greedy answers are shorter than sampled ones, and what is cut counts as wrong")
CUT_LEAST = Limit(100, EPISODES_LESS, "of an evaluation: in a tenth of 20 tasks there are two")
LATE = Limit(0.01, EPISODES, "what time takes are the longest answers, so that few of them are a bias already")
RAISED = Limit(0.01, EPISODES, "below, it may be one record of the data")
NEARLY_ALL = Limit(0.9, "of the episodes or groups", "what is left is noise: one in ten of a policy that has not begun")
HARDLY = Limit(0.02, "of the highest reward seen", "what one lucky episode among fifty gives")
UNREAD = Limit(0.05, "of the judge's answers", "each is wrong by the papers' rules: the mean reward moves by as much")
EMPTY = Limit(0.5, "of the searches", "a policy that has not begun asks for nonsense, and finds something still")
ONE_MESSAGE = Limit(1.05, "messages of an episode, mean", "nearly all have one")

# -- the policy --------------------------------------------------------------------------------------------------------
COLLAPSED = Limit(0.1, FIRST, "a tuned 7B model has 0.3 nats: at 0.03 all answers to a task are the same")
RISEN = Limit(1.0, "nats a token above the stage's first entropy, and GREW times it", "answers turn into noise")
DRIFTED = Limit(2.0, FIRST, "further from the reference than its own choice is wide: no text of it any more")
DRIFTED_LEAST = Limit(0.3, NATS, "a model with 0.03 nats of entropy may learn: research/tiny is well at 0.09")
BLOWN_UP = Limit(100.0, NATS, "no text of the reference has tokens that it gives e^-100")
STEEP = Limit(100.0, "times learner.clip_grad", "of such a gradient a hundredth is left: its direction is chance")
CLIPPED = Limit(0.3, "of the trained tokens", "PPO's usual share is up to 0.2: these tokens have no gradient")
OUTSIDE = Limit(0.5, "of the trained tokens", "the update is of another policy than the one that sampled")
FELL = Limit(0.5, REWARDS, "how far a mean falls below the best mean; less is what a harder draw of tasks does")
UNLEARNED = Limit(0.25, REWARDS, "how far below the best reward a policy is that has something left to learn")

# -- engine against learner --------------------------------------------------------------------------------------------
MISMATCH: Mapping[str, Limit] = {
    "bfloat16": Limit(0.1, NATS, "rounding alone is 0.04 to 0.05 on SmolLM2, one layer without attention 0.35"),
    "float32": Limit(0.01, NATS, "rounding alone is 1e-6 to 1e-4"),
}
GREW = Limit(3.0, "times", "rounding does not treble from the shortest contexts to the longest: positions differ")
LEAST_GAP = Limit(1e-3, NATS, "below, rounding alone doubles")

# -- machines ----------------------------------------------------------------------------------------------------------
LOPSIDED = Limit(
    0.25, "of the time", "by which one side is idle more than the other: GPUs of it would shorten the step"
)

# -- the report, of a run that is over or goes on ----------------------------------------------------------------------
LAST = 10  # steps that "now" means; few and large ones stand for it as soon as they have LAST_EPISODES
LAST_EPISODES = Limit(1000, EPISODES_LESS, "a difference of 0.05 between two such means is no chance")
FILTERED = Limit(0.5, GROUPS, "without signal: half of what is sampled is thrown away")
EASY = Limit(0.8, "of right answers", "above, most groups are all right")
HARD = Limit(0.2, "of right answers", "below, most groups are all wrong")
CUT_MORE = Limit(0.05, "rise of the share of episodes cut off", "answers outgrow their limit while there is time")
CUT_NOW = Limit(0.1, EPISODES, "less is a tail")
ERRORS = Limit(0.05, "of a tool's calls", "a service that is well fails in less than one of a hundred")
PAYS = Limit(0.1, REWARDS, "rise of the mean reward that held-out tasks should show")
THIRD = 30  # rows of a stage whose first and last third are compared: ten are a mean; or thirds of LAST_EPISODES

# -- the report, of speed and memory -----------------------------------------------------------------------------------
WAITS = Limit(0.4, "of a stage's seconds", "the learner waits for rollouts: two fifths of its GPUs are idle")
IDLE = Limit(0.6, "of the engines' time", "they work less, so that more of them would not help")
TOOLS = Limit(0.3, "of an episode's seconds", "a seat is empty for so long: more episodes at once fill it")
USEFUL = Limit(0.3, "of the learner's tokens", "the others are context and padding")
PADDING = Limit(0.1, "of the learner's rows", "one row of ten is empty")
FITTED = 20  # rows that a slope of memory needs: fewer are what allocators take once
STRAIGHT = Limit(0.8, "of the variance", "a slope explains it: less is a step, not a leak")
TAIL = Limit(
    2.0, "times the median of a step's episodes", "the longest: a step waits for it longer than for all others"
)

# -- what a mean is, of a fall -----------------------------------------------------------------------------------------
MEAN_STEPS = 3  # of the present mean
MEAN_GROUPS = Limit(64, "groups of the best mean, at least", "the best of hundreds of steps of few groups is luck")
CHANCE = Limit(1.5, "of the distance between rewards", "how far it takes the mean of one group; by the root of more")

TABLE: Mapping[str, Limit] = {name: limit for name, limit in vars().items() if isinstance(limit, Limit)} | {
    f"MISMATCH {dtype}": limit for dtype, limit in MISMATCH.items()
}
