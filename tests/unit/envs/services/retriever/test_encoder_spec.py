"""Pooling and prefixes are what a model's own files state, in a folder or on the hub; what is not stated is refused."""

import json
from pathlib import Path

import pytest
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from envs.services.retriever.encoder import Encoder
from envs.services.retriever.encoder_spec import read_spec
from rlsys.errors import BadInput
from tests.makers import tiny_encoder
from tests.refused import refused

CLS, MEAN, LAST = ({f"pooling_mode_{mode}": True} for mode in ("cls_token", "mean_tokens", "lasttoken"))
INSTRUCT = "Instruct: Given a web search query\nQuery:"


def write(folder: Path, pooling: object = None, **files: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "prefixed"),
    [("e5", True), ("intfloat/e5-large-v2", True), ("intfloat/multilingual-e5-base", True), ("e5-small-mine", True)],
)
def test_e5_is_known_by_its_name(name: str, prefixed: bool) -> None:
    spec = read_spec(name)
    assert (spec.query_prefix, spec.passage_prefix) == (("query: ", "passage: ") if prefixed else ("", ""))
    assert (spec.pooling, spec.max_tokens) == ("mean", 256)


@pytest.mark.parametrize(
    "name",
    [
        "intfloat_e5-base-v2",
        "models--intfloat--e5-base-v2",
        "my-e5-base",
        "E5-large",
        "models--intfloat--multilingual-e5-base/snapshots/0a1b2c",
    ],
)
def test_a_copy_of_e5_keeps_its_prefixes(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    spec = read_spec(str(write(folder)))
    assert (spec.pooling, spec.query_prefix, spec.passage_prefix) == ("mean", "query: ", "passage: ")
    (tmp_path / "link").symlink_to(folder)
    assert read_spec(str(tmp_path / "link")).query_prefix == "query: "


@pytest.mark.parametrize("name", ["my-e5", "e5_tuned", "multilingual-e5-large-instruct", "e5-base-v2/model"])
def test_another_e5_has_to_state_its_prefixes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir(parents=True)
    folder = write(tmp_path / name, MEAN)
    with refused("encoder", says="no file says its prefixes"):
        read_spec(str(folder))
    write(folder, config_sentence_transformers={"prompts": {"query": "query: ", "passage": "passage: "}})
    assert read_spec(str(folder)).query_prefix == "query: "


@pytest.mark.parametrize(
    ("pooling", "stated", "said"),
    [
        ([MEAN], {}, r"1_Pooling/config.json holds a list"),
        (MEAN, [], r"config_sentence_transformers\.json"),
        (MEAN, {"prompts": ["query: "]}, "its prompts are"),
        (MEAN, {"prompts": {"query": 1}}, "its prompts are"),
        (MEAN, {"prompts": {"web_search_query": "x", "sts": "y"}}, "web_search_query, sts, expected one"),
        (MEAN, {"similarity_fn_name": "dot"}, "similarity_fn_name is 'dot'"),
    ],
)
def test_files_of_another_shape_are_refused(pooling: object, stated: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        read_spec(str(write(tmp_path / "model", pooling, config_sentence_transformers=stated)))


def test_a_prompt_of_null_is_no_prefix(tmp_path: Path) -> None:
    stated = {"prompts": {"query": None, "document": None}, "similarity_fn_name": "cosine"}
    spec = read_spec(str(write(tmp_path / "model", MEAN, config_sentence_transformers=stated)))
    assert (spec.query_prefix, spec.passage_prefix) == ("", "")


@pytest.mark.parametrize(
    "name", ["e5-mistral-7b-instruct", "multilingual-e5-large-instruct", "pipe5-base", "e5-mistral"]
)
def test_what_only_sounds_like_e5_has_to_state_its_pooling(name: str, tmp_path: Path) -> None:
    with refused("encoder", says="1_Pooling"):
        read_spec(str(write(tmp_path / name)))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [(CLS, "cls"), (MEAN, "mean"), (LAST, "lasttoken"), ({"pooling_mode": "cls"}, "cls")],
)
def test_a_folder_states_its_pooling(pooling: object, expected: str, tmp_path: Path) -> None:
    assert read_spec(str(write(tmp_path / "model", pooling))).pooling == expected


@pytest.mark.parametrize("pooling", [{"pooling_mode_max_tokens": True}, {**CLS, **MEAN}, {}, {"pooling_mode": "max"}])
def test_another_pooling_is_refused(pooling: object, tmp_path: Path) -> None:
    with refused("encoder", says="pools by"):
        read_spec(str(write(tmp_path / "model", pooling)))


def test_prefixes_are_the_prompts_that_the_model_states(tmp_path: Path) -> None:
    stated = {"prompts": {"query": INSTRUCT, "document": ""}}
    spec = read_spec(str(write(tmp_path / "model", LAST, config_sentence_transformers=stated)))
    assert (spec.query_prefix, spec.passage_prefix) == (INSTRUCT, "")
    plain = read_spec(str(write(tmp_path / "plain", CLS, config_sentence_transformers={"prompts": {}})))
    assert (plain.query_prefix, plain.passage_prefix) == ("", "")


def test_a_layer_behind_the_pooling_is_refused(tmp_path: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling", "Dense")]
    with refused("encoder", says="Dense"):
        read_spec(str(write(tmp_path / "model", MEAN, modules=modules)))
    read_spec(str(write(tmp_path / "plain", MEAN, modules=[*modules[:2], {"type": "x.Normalize"}])))


def test_a_hub_name_is_read_as_its_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = write(tmp_path / "hub", CLS)

    def download(name: str, file: str) -> str:
        if name == "org/away":
            raise LocalEntryNotFoundError("no network")
        if not (hub / file).exists():
            raise EntryNotFoundError("404")
        return str(hub / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert read_spec("org/bge-base").pooling == "cls"
    (hub / "1_Pooling" / "config.json").unlink()
    with refused("encoder", says="1_Pooling"):
        read_spec("org/bge-base")
    with refused("encoder", says="no network"):
        read_spec("org/away")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with refused("encoder", says="no config.json"):
        read_spec(str(tmp_path))


def test_the_last_token_is_the_texts_own_and_no_padding(tmp_path: Path) -> None:
    folder = Path(tiny_encoder.build(tmp_path / "model"))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(LAST))
    encoder = Encoder(read_spec(str(folder)), device="cpu", dtype="float32", threads=1)
    short, long = "a b", "a b c d e f g h i j k"
    together = encoder.queries([short, long])
    assert together[0] == pytest.approx(encoder.queries([short])[0], abs=1e-6)
    assert together[1] == pytest.approx(encoder.queries([long])[0], abs=1e-6)
