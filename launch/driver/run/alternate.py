"""Who has the GPUs that ranks and engines use in alternation (`cluster.placement=sleep`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rlsys.alternating_cards import AlternatingCards, Side
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import LearnerLost

if TYPE_CHECKING:  # Ray and torch behind these
    from actors.pool import RolloutPool
    from learners.group import LearnerGroup

log = logging.getLogger("rlsys.cards")


def alternate(recipe: RecipeConfig, cards: AlternatingCards, learner: LearnerGroup, pool: RolloutPool) -> None:
    """The side that gets the cards comes when the other one has left them. Nothing where each has its own."""

    async def give(side: Side) -> None:
        if side is Side.LEARNER:
            await pool.sleep()
            await learner.return_to_card()
            return
        try:
            await learner.leave_card()
        except LearnerLost as error:  # dead ranks hold no card, and the learner's next call says so
            log.warning("%s", error)
        await pool.wake()

    if recipe.cluster.placement == "sleep":
        cards.begin(give)
