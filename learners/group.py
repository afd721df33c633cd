"""The learner group: N ranks as Ray actors, called together, each call with a deadline.

During a call to all ranks every rank is pinged, and a call that takes long is reported. An update may take half an
hour, and a hung rank looks like a long one: the others wait for it in a collective. The ping is answered on a separate
thread, so it says of a busy rank only that its process lives. It waits for the interpreter's lock, which torch and
NCCL release; reading a large batch or collecting garbage may hold it for seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import ray
import ray.util
from ray.exceptions import RayActorError, RayError, RayTaskError

from learners.actor import PINGS, WRITING, LearnerActor, RankPlacement
from learners.leaving import common_row
from learners.meeting import VARIABLES, RankSpec, describe_links, is_timeout
from learners.pings import OnPing, Ping, PingMonitor, ignore
from rlsys.alternating_cards import AlternatingCards, Side
from rlsys.batch import UpdateReport
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput, LearnerLost, RunFailed
from rlsys.metrics import Max, finite, merge
from rlsys.plan import BatchPlan, deal, row_cost, shard_plan
from rlsys.probe import Probe, ProbeValues
from rlsys.system.calls import RANK_CALL, RANK_START, describe_lost_node, reason, timeout_message, within
from rlsys.system.parts import of_part
from rlsys.system.patience import first_limit_s
from rlsys.system.supervisor import Supervised
from rlsys.system.weight_folder import WeightFolder, WeightManifest, join_manifests

log = logging.getLogger("rlsys.learner")

Rows = tuple[int, int]  # begun, in all

MEETING, MEASURING = "starting, where the ranks meet", "measuring an all-reduce"
PLACED = f"cluster.placement_timeout_s + {RANK_START}"
UNREACHED = f"the ranks may not reach each other: look at {VARIABLES}"
HINTS = {  # of calls that are late
    "starting": "a run that has a checkpoint goes on with fewer learner.ranks, too",
    MEETING: UNREACHED,
    MEASURING: UNREACHED,
}
UPDATING = "updating"  # the first word of each update
DEATH_KNOWN_S = 10.0  # in which Ray tells of a process that died


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    cpus: float
    gpus: float
    env_vars: dict[str, str]
    start_timeout_s: float
    call_timeout_s: float
    ping_timeout_s: float
    placement_timeout_s: float = 0.0  # to wait for a node in the place of one that was lost
    max_restarts: int = 3  # from one checkpoint to the next
    run: str = ""  # names the actors
    update_forecast_s: float | None = None  # where it is known how fast the machines are


class LearnerGroup:
    def __init__(
        self,
        specs: Sequence[RankSpec],
        options: GroupOptions,
        secrets: Mapping[str, str] | None = None,
        actor: type = LearnerActor,
        cards: AlternatingCards | None = None,
    ) -> None:
        """`secrets`: variables of the environment that must not stand in Ray's logs, where `env_vars` do. cards: the
        cards that the ranks share with engines."""
        self.specs, self._cards = specs, cards or AlternatingCards()
        self._actor = actor
        self.options = options
        self.secrets = secrets or {}
        self.nodes: list[str] = []  # the address of every rank's, from `start` on
        self.node_ids: list[str] = []  # and what Ray calls it
        self._placement: Sequence[Any] = ()
        self.life = Supervised[list[Any]](
            "the learner", self._create, self.meet, lambda actors: list(map(ray.kill, actors)),
            goal="a new checkpoint", max_restarts=options.max_restarts,
        )  # fmt: skip
        self._patience = PingMonitor(options.ping_timeout_s)
        self._ranks_per_row = 1
        self.on_rows: Callable[[int, int], None] = lambda row, total: None  # during an update: of the rank behind

    @property
    def num_ranks(self) -> int:
        return len(self.specs)

    @property
    def restarts(self) -> int:
        return self.life.restarts

    @property
    def actors(self) -> list[Any]:
        return self.life.handle or []

    async def start(self, placement: Sequence[Any] | None = None) -> None:
        """Start every rank, each where `placement` says, and let them meet."""
        self._placement = placement or ["DEFAULT"] * self.num_ranks
        await self.life.ensure()

    def _create(self) -> list[Any]:
        options = self.options
        life = f"#{self.restarts}" if self.restarts else ""  # Ray keeps the name of a killed actor for a moment longer
        return [
            ray.remote(concurrency_groups={PINGS: 1, WRITING: 1})(self._actor)
            .options(
                name=f"rlsys:{options.run}:learner:{number}{life}" if options.run else None,
                num_cpus=options.cpus,
                num_gpus=options.gpus,
                max_restarts=0,
                scheduling_strategy=where,
                runtime_env={"env_vars": options.env_vars | of_part(f"learner:{number}")},
            )
            .remote(number, self.secrets)
            for number, where in enumerate(self._placement)
        ]

    async def meet(self, actors: list[Any]) -> None:
        """They are numbered by node and GPU, so that neighbours in number are neighbours in the machine."""
        options = self.options
        placing = [rank.place.remote() for rank in actors]
        places = await self._wait(placing, "starting", options.placement_timeout_s + options.start_timeout_s, PLACED)
        order = order_ranks(places)
        actors[:] = [actors[index] for index in order]
        self.nodes = [places[index].node for index in order]
        self.node_ids = [places[index].node_id for index in order]
        opening = actors[0].open_store.remote(len(set(self.nodes)) == 1)
        (address,) = await self._wait([opening], "opening a port", options.start_timeout_s, RANK_START)
        specs = iter(self.specs)
        starting = [rank.start.remote(next(specs), address) for rank in actors]
        # Without pings: imports hold the lock that they need.
        await self._wait(starting, MEETING, options.start_timeout_s, RANK_START)
        if self.num_ranks > 1:
            await self.measure_links()

    async def measure_links(self) -> None:
        """Before the model loads: a wrong interface is found in seconds, and not by an update that never ends."""
        start_s = self.options.start_timeout_s
        measured = await self.call_all(
            lambda rank: rank.measure_gbps.remote(), MEASURING, start_s, RANK_START, on_card=False
        )
        text, slow = describe_links(min(measured), self.nodes, on_gpus=self.options.gpus > 0)
        log.log(logging.WARNING if slow or self.options.gpus else logging.INFO, "%s", text)

    async def begin(self, model_path: str, learner: LearnerConfig, algorithm: Any, **stage: Any) -> None:
        """As `LearnerRank.begin`, on every rank, with the algorithm's configuration."""
        self._ranks_per_row = learner.sequence_parallel
        await self.call_all(
            lambda rank: rank.begin.remote(model_path, learner, algorithm, **stage),
            f"loading {model_path}",
            self.options.start_timeout_s,
            RANK_START,
        )

    async def connect(self, served: Any) -> None:
        """As `LearnerRank.connect`. Ranks that are gone are told by the next `begin`."""
        try:
            await self.call_all(
                lambda rank: rank.connect.remote(served), "hearing of the reference's address", on_card=False
            )
        except (LearnerLost, RunFailed) as error:
            log.warning("%s", error)

    async def build(self, plan: BatchPlan) -> frozenset[int]:
        """Have every rank fetch and build its rows, for the next `update`.

        All ranks get equally many rows, so that none misses a collective (docs/laws.md, law 7); those that share rows,
        which are neighbours in number, the same. Returns the groups, by group_id, that are gone with the node that held
        them: then there is nothing to update on.
        """
        shards = self.num_ranks // self._ranks_per_row
        # In a thread: a large batch takes long to split and to pickle.
        refs = await asyncio.to_thread(lambda: list(map(ray.put, shard_plan(plan, shards))))
        parts = iter([ref for ref in refs for _ in range(self._ranks_per_row)])
        lost: list[frozenset[int]] = await self.call_all(
            lambda rank: rank.build.remote(next(parts)), f"building the rows of version {plan.version}", on_card=False
        )
        return frozenset().union(*lost)

    async def update(self, version: int) -> UpdateReport | None:
        """One update on the rows that the ranks have built. version: the one that is trained, for messages.

        None where it was left (`leave`): the weights and moments are those before it.
        """
        rows = dict[int, Rows]()

        def on_ping(rank: int, answer: Rows) -> None:
            rows[rank] = answer
            self.on_rows(*min(rows.values()))

        reports: list[UpdateReport | None] = await self.call_all(
            lambda rank: rank.update.remote(), f"{UPDATING} on version {version}", on_ping=on_ping
        )
        rank_reports = [report for report in reports if report is not None]
        return merge_reports(rank_reports) if len(rank_reports) == len(reports) else None

    async def leave(self) -> int | None:
        """Have the ranks leave the update in progress between two rows, the same on all of them: after how many.

        None where one of them was past its first optimizer step, or does not answer: then the update goes on.
        """
        place = None
        try:
            place = common_row(await self._ask_all(lambda rank: rank.hold.remote(self.options.ping_timeout_s)))
        except (RayError, TimeoutError) as error:  # the update itself says what is wrong
            log.warning("the update is not left: %s", reason(error))
        with suppress(RayError, TimeoutError):
            await self._ask_all(lambda rank: rank.resume.remote(place))
        return place

    async def _ask_all(self, call: Callable[[Any], Any]) -> list[Any]:
        return await within(asyncio.gather(*map(call, self.actors)), self.options.ping_timeout_s)

    async def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """log p of every token but the first, given those before it: one list per sequence. Each rank has its share of
        the sequences."""
        shares = deal([row_cost([len(ids)]) for ids in token_ids], self.num_ranks)
        parts = iter([[token_ids[index] for index in share] for share in shares])
        by_rank: list[list[list[float]]] = await self.call_all(
            lambda rank: rank.logprobs.remote(next(parts)), "log-probabilities"
        )
        by_index = dict(zip(chain.from_iterable(shares), chain.from_iterable(by_rank), strict=True))
        return [by_index[index] for index in range(len(token_ids))]

    async def measure(self, probe: Probe) -> ProbeValues:
        """The probe's log-probabilities under its noise."""
        by_rank: list[ProbeValues] = await self.call_all(lambda rank: rank.measure.remote(probe), "trying a noise")
        return by_rank[0]

    async def export(self, folder: WeightFolder, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        """Send the weights, with the probe's noise, as `version`; with the probe's log-probabilities under them."""
        by_rank = await self.call_all(
            lambda rank: rank.export.remote(folder, version, probe), f"exporting version {version}"
        )
        return join_manifests([share for share, _ in by_rank]), by_rank[0][1]

    async def snapshot(self, folder: Path, tokenizer_from: str) -> None:
        """Copy a checkpoint of the weights as they are; its Hugging Face part takes the tokenizer of a folder or hub
        name that lasts."""
        await self.call_all(lambda rank: rank.snapshot.remote(str(folder), tokenizer_from), "copying a checkpoint")

    async def write(self) -> None:
        """Write what was copied last into its folder. Other calls may be made meanwhile, but no further snapshot."""
        await self.call_all(lambda rank: rank.write.remote(), "writing a checkpoint", on_card=False)

    async def leave_card(self) -> None:
        """What every rank keeps on its GPU goes to host memory."""
        await self.call_all(lambda rank: rank.leave_card.remote(), "leaving the GPUs", on_card=False)

    async def return_to_card(self) -> None:
        """And comes back."""
        await self.call_all(lambda rank: rank.return_to_card.remote(), "returning to the GPUs", on_card=False)

    async def load(self, folder: Path, *, optimizers_alone: bool = False) -> None:
        await self.call_all(lambda rank: rank.load.remote(str(folder), optimizers_alone), f"loading {folder}")

    async def check(self, activity: str) -> None:
        """Raises LearnerLost when a rank has died, under `activity`."""
        if (died := await self._death_reason()) is not None:
            raise LearnerLost(f"learner {activity}: {died}")

    async def restart(self) -> None:
        """Other processes in the same places; none of the old ones, alive or hung, is left. `begin` has to follow."""
        await self.life.restart()

    async def stop(self) -> None:
        await self.life.stop()

    async def call_all(
        self,
        call: Callable[[Any], Any],
        activity: str,
        timeout_s: float | None = None,
        key: str = RANK_CALL,
        on_ping: OnPing = ignore,
        on_card: bool = True,
    ) -> list[Any]:
        """Every rank's answer. call: starts it on one rank. activity: "loading m", for messages. key: that sets
        `timeout_s`: an update's if not given. on_ping: gets the answers of ranks to pings meanwhile. on_card: it needs
        the ranks' GPUs, where they have them in turn."""
        timeout_s = timeout_s or self.options.call_timeout_s
        async with self._cards.hold(Side.LEARNER) if on_card else nullcontext():
            refs, pings = [call(rank) for rank in self.actors], [rank.ping.remote for rank in self.actors]
            return await self._wait(refs, activity, timeout_s, key, pings, on_ping)

    async def _wait(
        self,
        refs: list[Any],
        activity: str,
        timeout_s: float,
        key: str,
        pings: Sequence[Ping] = (),
        on_ping: OnPing = ignore,
    ) -> list[Any]:
        """The first rank to fail fails the call: the others may be waiting for it in a collective."""
        forecast_s = self.options.update_forecast_s if activity.startswith(UPDATING) else None
        first_s = first_limit_s(timeout_s, forecast_s)
        waiting = self._patience.during(asyncio.gather(*refs), activity, pings, first_s=first_s, on_ping=on_ping)
        try:
            answers: list[Any] = await within(waiting, timeout_s)
            return answers
        except RayTaskError as error:  # first: it is also an instance of what the rank raised, a TimeoutError say
            if isinstance(error.cause, BadInput):
                raise BadInput(error.cause) from error
            if (died := await self._death_reason()) is not None:  # then what the others say is that they heard of it
                raise LearnerLost(f"learner {activity}: {died}") from error
            if isinstance(error.cause, RunFailed):
                raise RunFailed(f"learner {activity}: {error.cause}") from error
            if is_timeout(error.cause):
                in_vain = f"a collective waited for a rank in vain, nearly {RANK_CALL}: {UNREACHED}"
                raise LearnerLost(f"learner {activity}: {in_vain}") from error
            raise RunFailed(f"learner {activity}: {reason(error)}") from error
        except TimeoutError as error:
            more = HINTS.get(activity, "")
            raise RunFailed(f"learner {activity}: {timeout_message(timeout_s, key)}{more and f'; {more}'}") from error
        except RayError as error:  # a death, out of memory, no environment, an object lost ...
            if (why := _death_of(error)) is not None:
                raise LearnerLost(f"learner {activity}: {why}") from error
            message = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            raise RunFailed(f"learner {activity}: {message}") from error

    async def _death_reason(self) -> str | None:
        """Why a rank is dead, where one is: the others fail first, in a collective."""
        pings = asyncio.gather(*(rank.ping.remote() for rank in self.actors), return_exceptions=True)
        try:
            async with asyncio.timeout(DEATH_KNOWN_S):
                answers = await pings
        except TimeoutError:
            return None
        return next((why for answer in answers if isinstance(answer, RayError) and (why := _death_of(answer))), None)


def _death_of(error: RayError) -> str | None:
    return describe_lost_node(error) or ("a rank died" if isinstance(error, RayActorError) else None)


def merge_reports(reports: Sequence[UpdateReport]) -> UpdateReport:
    """The report of all ranks together. A metric that is not finite on one rank is left out and counted: the mean
    of the other ranks would look like that of all."""
    metrics = merge(report.metrics for report in reports)
    finite_metrics = finite(metrics)
    return UpdateReport(
        applied=all(report.applied for report in reports),
        metrics={**finite_metrics, "learner/not_finite": Max(len(metrics) - len(finite_metrics))},
        seconds=max(report.seconds for report in reports),
        advantages={key: values for report in reports for key, values in report.advantages.items()},
    )


def order_ranks(places: Sequence[RankPlacement]) -> list[int]:
    """Which of the actors becomes rank 0, which rank 1 ...: node by node, on each by GPU."""
    keys = [(place.node, len(place.gpus), place.gpus) for place in places]
    return sorted(range(len(places)), key=keys.__getitem__)


def rank_specs(first: RankSpec, world_size: int) -> list[RankSpec]:
    return [replace(first, rank=rank, world_size=world_size) for rank in range(world_size)]
