"""rlsys.config.identity: what is the same configuration, in a process and between machines."""

from dataclasses import dataclass, field
from typing import Optional

from rlsys.config.identity import config_key, identity_of


@dataclass(frozen=True)
class Server:
    url: str = "http://a"
    model: str = "m"


@dataclass(frozen=True)
class Maze:
    name: str = "maze"
    seed: int = field(default=0, repr=False)
    server: Server = field(default_factory=Server)


@dataclass(frozen=True)
class Door:
    workers: int = 2
    token_env: Optional[str] = None


@dataclass(frozen=True)
class House:
    doors: list[Door] = field(default_factory=list)


@dataclass(frozen=True)
class Cave(Maze):
    pass


def test_equal_configs_have_one_key_and_others_have_others() -> None:
    assert config_key(Maze()) == config_key(Maze(server=Server()))
    different = [Maze(), Maze(seed=1), Maze(server=Server(url="http://b")), Cave(), Maze, {"name": "maze"}]
    assert len({config_key(config) for config in different}) == len(different)


def test_addresses_are_no_part_of_what_files_are_found_by() -> None:
    identity = identity_of("env", Maze(server=Server(url="http://b")))
    assert identity == {"env.name": "maze", "env.seed": 0, "env.server": {"model": "m"}} == identity_of("env", Maze())


def test_in_a_list_the_names_of_tokens_are_none_and_what_results_were_published_with_stays() -> None:
    assert identity_of("env", House([Door(token_env="A")])) == {"env.doors": [{"workers": 2}]}
