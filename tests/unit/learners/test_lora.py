"""Adapters in the learner: what peft computes, from one seed, alone trained and sent, and merged without a loss."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from learners import lora
from learners.export import export_version, perturb_weights, weights
from learners.hub_folder import copy_hf
from learners.policy import PolicyModel, load_policy
from learners.rows import pack_ids
from learners.snapshot import Snapshot
from learners.zero import parameter_groups
from rlsys.adapters import CONFIG, WEIGHTS, Adapter, AdapterStart, read_adapter
from rlsys.config.model import ALL_LINEAR, LoraConfig
from rlsys.errors import BadInput
from rlsys.system.weight_folder import WeightFolder

ROW = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11]]


def load(source: Path, dtype: str = "float32") -> PolicyModel:
    return load_policy(str(source), dtype=dtype, attention_key="packed_sdpa")


def adapter_on(source: Path, **keys) -> Adapter:
    return Adapter.on(str(source), LoraConfig(**{"rank": 4, **keys}))


def logp(policy: PolicyModel) -> torch.Tensor:
    with torch.no_grad():
        return policy(*pack_ids(ROW, "cpu"), 1.0, 100)[0]


def spread(policy: PolicyModel, seed: int = 3) -> dict[str, torch.Tensor]:
    """Gives the adapter numbers that show, and returns them."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in lora.parameters(policy.model).values():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return {name: tensor.detach().clone() for name, tensor in lora.parameters(policy.model).items()}


@pytest.fixture
def adapted(source: Path) -> PolicyModel:
    policy = load(source)
    policy.take_adapter(adapter_on(source), seed=1)
    return policy


def save(policy: PolicyModel, folder: Path, source: Path) -> Path:
    into = Snapshot()
    copy_hf(policy, folder, str(source), into, rank=0, num_ranks=1)
    into.write()
    return folder


def test_a_saved_adapter_says_in_peft_and_transformers_what_the_learner_says(source, adapted, tmp_path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    spread(adapted)
    folder = save(adapted, tmp_path / "hf", source)
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(source), folder)
    parts = logp(adapted).split(list(map(len, ROW)))
    for ids, ours in zip(ROW, parts, strict=True):
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = logits[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert (ours[1:] - expected).abs().max() < 1e-4
    assert not (folder / "model.safetensors").exists()
    assert read_adapter(folder) == adapted.adapter
    assert (folder / "tokenizer.json").is_file() and (folder / "config.json").is_file()


def test_a_new_adapter_changes_nothing_and_a_saved_one_continues_to_the_bit(source, adapted, tmp_path) -> None:
    plain = logp(load(source))
    assert torch.allclose(logp(adapted), plain, atol=1e-5)
    spread(adapted)
    folder = save(adapted, tmp_path / "hf", source)
    again = load(source)
    start = AdapterStart(adapter=adapter_on(source), folder=str(folder))
    again.take_adapter(start.adapter, 9, start.folder)
    assert torch.equal(logp(again), logp(adapted))
    assert (logp(again) - plain).abs().max() > 0.1


def test_the_numbers_follow_from_the_seed_whatever_was_drawn_before(source) -> None:
    """TRL 6688: the seed was set after the adapter had its numbers, so that no two runs began alike."""
    adapters = []
    for drawn, seed in ((1, 5), (2, 5), (3, 6)):
        policy = load(source)
        torch.manual_seed(drawn)
        torch.rand(drawn)
        state = torch.get_rng_state()
        policy.take_adapter(adapter_on(source), seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        adapters.append(lora.parameters(policy.model))
    first, twin, other = adapters
    assert all(torch.equal(first[name], twin[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in first if "lora_A" in name)
    assert all(not tensor.any() for name, tensor in first.items() if "lora_B" in name)
    assert len({float(tensor.detach().sum()) for name, tensor in first.items() if "lora_A" in name}) == len(first) / 2


def test_the_adapter_alone_is_trained_and_sent(adapted, tmp_path) -> None:
    names = {item.names[0] for item in weights(adapted.model)}
    layers = adapted.model.config.num_hidden_layers
    assert len(names) == layers * len(ALL_LINEAR) * 2
    assert "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight" in names
    (group,) = parameter_groups(adapted, 0.1)
    assert len(group["params"]) == len(names) and all(parameter.requires_grad for parameter in group["params"])
    published = export_version(adapted.model, WeightFolder(tmp_path), 1, rank=0, num_ranks=1)
    assert published.tensors == len(names)
    assert set(load_file(published.places[0])) == names
    adapted(*pack_ids(ROW, "cpu"), 1.0, 100)[0].sum().backward()
    with_gradient = {name for name, parameter in adapted.model.named_parameters() if parameter.grad is not None}
    assert len(with_gradient) == len(names)


@pytest.mark.parametrize(("rank", "alpha"), [(1, 32.0), (16, 32.0), (16, 1.0)])
def test_the_canary_changes_a_new_adapter_visibly_whatever_its_scale_and_puts_it_back(source, rank, alpha) -> None:
    policy = load(source)
    policy.model.get_output_embeddings().weight.data.mul_(10)  # logits of a trained model's size
    policy.take_adapter(adapter_on(source, rank=rank, alpha=alpha), seed=1)
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    true = logp(policy)
    with perturb_weights(policy.model, 0.5, alpha / rank):
        assert (logp(policy) - true).abs().mean() > 0.2  # what the start-up check asks for
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.model.state_dict().items())


def test_the_reference_is_the_base_with_the_adapter_off_and_the_gradients_go_on(source, adapted, tmp_path) -> None:
    spread(adapted, seed=4)
    earlier = logp(adapted)
    folder = save(adapted, tmp_path / "hf", source)
    own = spread(adapted)
    moved = logp(adapted)
    with torch.no_grad(), lora.AdapterReference(adapted, None, torch.device("cpu")).ready() as model:
        assert torch.equal(logp(model), logp(load(source)))
    with torch.no_grad(), lora.AdapterReference(adapted, str(folder), torch.device("cpu")).ready() as model:
        assert torch.equal(logp(model), earlier)
    assert torch.equal(logp(adapted), moved)
    assert all(torch.equal(tensor, own[name]) for name, tensor in lora.parameters(adapted.model).items())
    assert all(parameter.requires_grad for parameter in lora.parameters(adapted.model).values())


def test_whose_model_can_stand_in_for_the_reference(source, adapted, tmp_path) -> None:
    folder = save(adapted, tmp_path / "hf", source)
    assert lora.reference_folder(str(source), adapted.adapter) == (True, None)
    assert lora.reference_folder(str(folder), adapted.adapter) == (True, str(folder))
    assert lora.reference_folder(str(tmp_path), adapted.adapter)[0] is False
    assert lora.reference_folder(str(folder), adapter_on(source, alpha=8.0))[0] is False


def test_a_merge_is_summed_in_float32_where_bfloat16_would_lose_the_update(source) -> None:
    """NeMo RL 3696, TRL 6688: an update that is smaller than a weight's last bit is gone after a merge in bfloat16.

    0.02 has neighbours 2^-13 = 1.2e-4 apart in bfloat16. An update of 4e-5 a step, merged after each of three steps,
    moves nothing; their sum, merged once, moves the weight by one step of 1.2e-4.
    """
    model = load(source, "bfloat16").model
    name, adapter = "model.layers.0.mlp.up_proj", adapter_on(source, rank=1, alpha=1.0)
    weight = dict(model.named_parameters())[f"{name}.weight"]
    with torch.no_grad():
        weight.fill_(0.02)
    before = weight.detach().clone()

    def ab(size: float) -> dict[str, torch.Tensor]:
        out, inside = weight.shape
        return {
            f"base_model.model.{name}.lora_A.weight": torch.full((1, inside), 1.0),
            f"base_model.model.{name}.lora_B.weight": torch.full((out, 1), size),
        }

    for _ in range(3):
        assert lora.merge(model, ab(4e-5), adapter) == pytest.approx(1.0, rel=1e-3)  # all of it
    assert torch.equal(weight, before)  # the wound
    lora.merge(model, ab(1.2e-4), adapter)
    assert torch.equal(weight.float(), (before.float() + 1.2e-4).bfloat16().float()) and not torch.equal(weight, before)


def test_a_merged_model_says_what_the_adapter_says(source, adapted) -> None:
    tensors = spread(adapted)
    whole = load(source)
    assert lora.merge(whole.model, tensors, adapted.adapter) < 1e-3  # in float32
    assert (logp(whole) - logp(adapted)).abs().max() < 1e-4
    with pytest.raises(BadInput, match="has no place in the model"):
        lora.merge(whole.model, {"base_model.model.x.lora_A.weight": torch.ones(1, 1)}, adapted.adapter)
    first = next(name for name in tensors if ".lora_B." in name)
    for half in ({first: tensors[first]}, tensors | {"base_model.model.x.bias": torch.ones(1)}, {}):
        with pytest.raises(BadInput, match="has no place in the model"):
            lora.merge(load(source).model, half, adapted.adapter)


def test_a_merge_repeats_no_row_and_reads_no_damaged_file(source, adapted, tmp_path) -> None:
    """An update of one row would fit every row of the weight."""
    tensors = spread(adapted)
    up = next(name for name in tensors if ".lora_B." in name)
    with pytest.raises(BadInput, match="with the shapes"):
        lora.merge(load(source).model, tensors | {up: tensors[up][:1]}, adapted.adapter)
    folder = save(adapted, tmp_path / "hf", source)
    (folder / WEIGHTS).write_bytes(b"xx")
    with pytest.raises(BadInput, match="damaged"):
        lora.read_tensors(folder)
    config = folder / CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | {"target_modules": ["q_proj", 1]}))
    with pytest.raises(BadInput, match="no adapter that can be read"):
        read_adapter(folder)


def test_layers_that_the_model_lacks_are_named(source) -> None:
    with pytest.raises(BadInput, match=r"model.lora.targets.*no linear layer 'qkv_proj'.*down_proj, gate_proj"):
        load(source).take_adapter(adapter_on(source, targets=("qkv_proj",)), 0)


@pytest.mark.parametrize(("change", "said"), [("drop", "is missing"), ("shape", "has the shape"), ("add", "no place")])
def test_a_damaged_adapter_is_not_loaded_in_part(source, adapted, tmp_path, change, said) -> None:
    folder = save(adapted, tmp_path / "hf", source)
    tensors = load_file(folder / WEIGHTS)
    name = next(iter(tensors))
    if change == "drop":
        del tensors[name]
    elif change == "shape":
        tensors[name] = torch.zeros(1, 1)
    else:
        tensors["base_model.model.extra.lora_A.weight"] = torch.zeros(1, 1)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(BadInput, match=said):
        lora.load_adapter(adapted.model, folder)


@pytest.mark.parametrize("stands_on", ["bases/abc", "model"])
def test_an_adapter_of_another_kind_is_refused_and_a_moved_run_finds_its_base(source, stands_on, tmp_path) -> None:
    base = tmp_path / "run" / stands_on
    shutil.copytree(source, base)
    folder = tmp_path / "run" / "checkpoints" / "step-000001" / "hf"
    folder.mkdir(parents=True)
    adapter_on(base).write(folder)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    adapter = read_adapter(moved / "checkpoints" / "step-000001" / "hf")
    assert adapter is not None and adapter.base == str(moved / stands_on)
    config = moved / "checkpoints" / "step-000001" / "hf" / CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_dora": True}))
    with pytest.raises(BadInput, match="another kind"):
        read_adapter(config.parent)
    assert read_adapter(source) is None


def test_a_model_above_a_moved_run_is_not_taken_for_its_own(source, tmp_path) -> None:
    """Any folder may be called model: only that of the run directory is meant, and one with a model in it."""
    shutil.copytree(source, tmp_path / "model")
    folder = tmp_path / "moved" / "checkpoints" / "step-000001" / "hf"
    folder.mkdir(parents=True)
    (tmp_path / "moved" / "model").mkdir()
    adapter_on(tmp_path / "run" / "model").write(folder)
    adapter = read_adapter(folder)
    assert adapter is not None and adapter.base == str(tmp_path / "run" / "model")
