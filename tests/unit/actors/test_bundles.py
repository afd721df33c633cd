"""Which bundles a run asks for, and what is said of the one that has no place. Nodes of 8 GPUs unless said."""

from __future__ import annotations

from actors.bundles import Bundle, Node, ResourceRequest, pack_bundles, shortage


def ranks(count: int, cpus: float = 1) -> list[ResourceRequest]:
    return [ResourceRequest(what="learner rank", cpus=cpus, gpus=1, lower="learner.ranks", gathers=True)] * count


def engines(count: int, gpus: int = 1) -> list[ResourceRequest]:
    return [ResourceRequest(what="rollout worker", cpus=8, gpus=gpus, lower="rollout.workers")] * count


def free(*gpus: float, cpus: float = 96) -> list[Node]:
    return [Node(address=f"10.0.0.{number}", cpus=cpus, gpus=each) for number, each in enumerate(gpus, 1)]


def gpus(bundles: list[Bundle]) -> list[float]:
    return [bundle.gpus for bundle in bundles]


def test_ranks_share_a_bundle_for_each_node_and_each_engine_has_its_own() -> None:
    found = pack_bundles(ranks(12) + engines(2, gpus=2), free(8, 8))
    assert gpus(found) == [8, 4, 2, 2]
    assert [bundle.actors for bundle in found] == [8, 4, 1, 1]
    assert found[0] == Bundle(what="8 x learner rank", actors=8, cpus=8, gpus=8, lower="learner.ranks")
    assert sum(bundle.actors for bundle in found) == 14


def test_ranks_are_divided_further_where_the_nodes_are_partly_taken() -> None:
    assert gpus(pack_bundles(ranks(8), free(6, 2), free(8, 8))) == [6, 2]
    assert gpus(pack_bundles(ranks(8), free(4, 4), free(8, 8))) == [4, 4]
    assert gpus(pack_bundles(ranks(8), free(3, 2), free(8, 8))) == [8]  # when others end
    assert gpus(pack_bundles(ranks(2), free(1, 1), free(2))) == [1, 1]


def test_cpus_can_be_what_divides_the_ranks() -> None:
    on_cpus = [ResourceRequest(what="learner rank", cpus=2, gathers=True)] * 2
    nodes = free(0, 0, cpus=3)
    assert [bundle.cpus for bundle in pack_bundles(on_cpus, nodes)] == [2, 2]
    assert [bundle.cpus for bundle in pack_bundles(on_cpus, free(0, cpus=4))] == [4]


def test_what_takes_nothing_of_a_node_is_one_bundle() -> None:
    idle = [ResourceRequest(what="learner rank", cpus=0, gathers=True)] * 3
    assert [bundle.actors for bundle in pack_bundles(idle, free(8))] == [3]


def test_where_no_node_has_a_gpu_yet_a_usual_one_is_waited_for() -> None:
    found = pack_bundles(ranks(12), free(0), free(0))
    assert gpus(found) == [8, 4]
    assert shortage(found, free(0)).startswith("no node has room for 8 x learner rank (8 GPUs and 8 CPUs): ")


def test_two_halves_of_a_node_are_no_node() -> None:
    asked = pack_bundles(engines(1, gpus=8), free(4, 5))
    assert shortage(asked, free(4, 5)) == (
        "no node has room for rollout worker (8 GPUs and 8 CPUs): 10.0.0.2 comes closest and lacks 3 GPUs beside the "
        "other actors; lower rollout.workers, or wait for other jobs"
    )
    assert shortage(asked, free(4, 8)) == ""


def test_what_is_lacking_is_counted_beside_the_rest_of_the_run() -> None:
    asked = pack_bundles(ranks(4) + engines(5), free(8))
    assert "for rollout worker (1 GPU and 8 CPUs): 10.0.0.1 comes closest and lacks 1 GPU beside" in shortage(
        asked, free(8)
    )
    assert not shortage(asked, free(9))
    assert "lacks 4 CPUs beside" in shortage(asked, free(9, cpus=40))


def test_what_needs_no_gpu_leaves_the_nodes_that_have_some() -> None:
    service = [ResourceRequest(what="retriever", cpus=4)]
    nodes = [*free(8, cpus=64), Node(address="10.0.0.9", cpus=4, gpus=0)]
    assert not shortage(pack_bundles(ranks(0) + engines(8) + service, nodes), nodes)


def test_a_cluster_without_a_node() -> None:
    assert shortage(pack_bundles(engines(1), []), []).endswith("(1 GPU and 8 CPUs): no node is alive")
