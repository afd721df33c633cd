"""envs.problems.knowledge: the made-up world, and that the real retriever finds what its questions need."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.problems.knowledge import (
    RELATIONS,
    SYLLABLES,
    KnowledgeConfig,
    Question,
    knowledge_base,
    query,
    questions,
    read_anything,
    read_value,
)
from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Document
from envs.tools.search import LocalSearch
from rlsys.errors import BadInput

CONFIG = KnowledgeConfig()
BASE = knowledge_base(CONFIG, seed=0)


def test_every_fact_is_one_passage_of_one_sentence() -> None:
    assert (len(BASE.kinds), len(BASE.facts), len(BASE.documents)) == (300, 900, 900)
    (name, relation), value = next(iter(BASE.facts.items()))
    assert BASE.documents[0] == Document(id="0", contents=f'"{name}"\nThe {relation} of {name} is {value}.')
    assert len({document.id for document in BASE.documents}) == 900


def test_facts_lead_to_another_thing_of_the_right_kind() -> None:
    for (name, relation), value in BASE.facts.items():
        assert BASE.kinds[value] == RELATIONS[BASE.kinds[name]][relation]
        assert value != name


def test_names_are_three_syllables() -> None:
    for name in BASE.kinds:
        low = name.lower()
        assert len(low) == 6 and {low[:2], low[2:4], low[4:]} <= set(SYLLABLES)


def test_a_question_is_answered_by_following_its_relations() -> None:
    two = questions(BASE, 2, seed=0)
    assert len({question.text for question in two}) == len(two) > 2500  # 2,700 less those that come back
    for question in two:
        bridge = BASE.facts[question.start, question.relations[0]]
        assert question.answer == BASE.facts[bridge, question.relations[1]]
        assert len({question.start, bridge, question.answer}) == 3
    assert len(questions(BASE, 1, seed=0)) == 900


def test_question_wording() -> None:
    question = Question(start="Zokami", relations=("birthplace", "ruler"), answer="Bikano")
    assert question.text == "What is the ruler of the birthplace of Zokami?"
    assert replace(question, relations=("teacher",)).text == "What is the teacher of Zokami?"


def test_the_same_seed_makes_the_same_world_and_another_another() -> None:
    assert knowledge_base(CONFIG, seed=0) == BASE != knowledge_base(CONFIG, seed=1)
    assert questions(BASE, 2, seed=0) == questions(BASE, 2, seed=0) != questions(BASE, 2, seed=1)


@pytest.mark.parametrize("entities", [9, 300, 1728])
def test_the_real_retriever_ranks_the_needed_passage_first(entities: int) -> None:
    base = knowledge_base(KnowledgeConfig(entities=entities), seed=3)
    search = LocalSearch(RetrieverConfig(), lambda: base.documents, topk=2)
    for name, relation in list(base.facts)[:900]:
        passages = search(query(relation, name))
        assert read_value(passages[:1], relation, name) == base.facts[name, relation]


@settings(max_examples=50)
@given(st.lists(st.text(max_size=40), max_size=3))
def test_reading_any_documents_raises_nothing(texts: list[str]) -> None:
    documents = [Document(id="0", contents=text) for text in texts]
    assert read_value(documents, "ruler", "Zokami") is None
    assert (read_anything(documents) is None) == (not documents)


def test_reading_takes_the_value_from_its_sentence_only() -> None:
    documents = [
        Document(id="0", contents='"Zokami"\nThe teacher of Zokami is Lutera.'),
        Document(id="1", contents='"Zokami"\nThe birthplace of Zokami is Bikano.'),
    ]
    assert read_value(documents, "birthplace", "Zokami") == "Bikano"
    assert read_value(documents, "guild", "Zokami") is None
    assert read_anything(documents) == "Lutera"


@pytest.mark.parametrize(("values", "message"), [({"entities": 8}, "9 to 1728"), ({"hops": 4}, "1 to 3")])
def test_a_bad_setting_is_named(values: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        KnowledgeConfig(**values)
