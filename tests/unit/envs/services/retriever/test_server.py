"""The wire: Search-R1's and ReSearch's protocols word for word, limits, refusals. A real server in a thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.services.app import HttpRefusal, parse_body
from envs.services.guard import ToolBusy, ToolRefused
from envs.services.http import take_port
from envs.services.json_client import retry_after
from envs.services.retriever.config import RetrieverServerConfig
from envs.services.retriever.corpus import Document, ListCorpus
from envs.services.retriever.retriever import Encoded
from envs.services.retriever.service import Retrieve, RetrieverApp, RetrieverServer
from envs.tools.search import RetrieverClient, read_answer
from launch.cli import run
from tests.refused import refused

PASSAGES = ["apple banana", "apple apple cherry", "apple date", "apple elder", "fig"]
CORPUS = ListCorpus([Document(id=str(row), contents=f'"T{row}"\n{text}') for row, text in enumerate(PASSAGES)])
NULLS = {"result": [[{"contents": None, "text": None}]]}
JSON = {"content-type": "application/json"}
# One for all: to read the certificates takes longer than to ask. No connection outlives its server.
CLIENT = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
NO_OBJECT = {
    "type": "model_attributes_type",
    "loc": ["body"],
    "msg": "Input should be a valid dictionary or object to extract fields from",
}
NO_COLON = {
    "type": "json_invalid",
    "loc": ["body", 4],
    "msg": "JSON decode error",
    "ctx": {"error": "Expecting ':' delimiter"},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    config = RetrieverServerConfig(corpus="", port=0, max_queries=4, max_topk=20, max_body_kb=64, max_query_chars=50)
    server = RetrieverServer(config)
    yield server.start(CORPUS)
    assert server.stop()


def post(url: str, path: str, content: Any) -> tuple[int, Any]:
    response = CLIENT.post(url + path, json=content)
    return response.status_code, response.json()


def counted(url: str, name: str) -> float:
    lines = CLIENT.get(url + "/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name + " ")).split(" ")[1])


def document(row: int) -> dict[str, str]:
    return {"id": str(row), "contents": f'"T{row}"\n{PASSAGES[row]}'}


def test_retrieve_with_scores(url: str) -> None:
    request = {"queries": ["cherry", "apple", "unheard"], "topk": 2, "return_scores": True}
    status, answer = post(url, "/retrieve", request)
    assert (status, list(answer)) == (200, ["result"])
    cherry, apple, unheard = answer["result"]
    assert [hit["document"] for hit in cherry] == [document(1)]  # fewer than topk
    assert [set(hit) for hit in cherry] == [{"document", "score"}]
    assert len(apple) == 2
    assert apple[0]["score"] >= apple[1]["score"] > 0
    assert unheard == []


@pytest.mark.parametrize("queries", [["cherry"], ["cherry", "fig"], ["cherry", "fig", "date"], []])
def test_retrieve_without_scores_gives_bare_documents(url: str, queries: list[str]) -> None:
    # Here the authors' own server raises, or with exactly two queries silently answers something else.
    expected = {"cherry": [document(1)], "fig": [document(4)], "date": [document(2)]}
    assert post(url, "/retrieve", {"queries": queries}) == (200, {"result": [expected[query] for query in queries]})


@pytest.mark.parametrize("asked", [{}, {"topk": None}, {"topk": 0}, {"topk": 3}])
def test_no_topk_means_three(url: str, asked: dict[str, Any]) -> None:
    assert len(post(url, "/retrieve", {"queries": ["apple"]} | asked)[1]["result"][0]) == 3


def test_a_trainer_s_whole_batch_is_one_request() -> None:
    # Search-R1's generation loop posts the queries of all its rollouts (512 tasks times 5) at once.
    server = RetrieverServer(RetrieverServerConfig(corpus="", port=0))
    url = server.start(CORPUS)
    try:
        request = {"queries": [f"cherry {row}" for row in range(2560)], "topk": 3, "return_scores": True}
        status, answer = post(url, "/retrieve", request)
        assert (status, len(answer["result"])) == (200, 2560)
        assert all(hits[0]["document"] == document(1) for hits in answer["result"][5:])
        status, answer = post(url, "/retrieve", request | {"topk": 100})  # 256,000 documents
        assert (status, answer["detail"][0]["loc"]) == (422, ["body", "queries"])
        status, answer = post(url, "/batch_search", {"query": request["queries"], "top_n": 100})
        assert (status, answer["detail"][0]["loc"]) == (422, ["body", "query"])
    finally:
        server.stop()


def test_search_one(url: str) -> None:
    assert post(url, "/search", {"query": "fig"}) == (200, [document(4)])
    status, (documents, scores) = post(url, "/search", {"query": "apple", "top_n": 2, "return_score": True})
    assert (status, len(documents), len(scores)) == (200, 2, 2)
    assert set(documents[0]) == {"id", "contents"}


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_a_blank_search_is_refused_in_their_words(url: str, query: str) -> None:
    assert post(url, "/search", {"query": query}) == (400, {"detail": "Query content cannot be empty"})


def test_search_many(url: str) -> None:
    request = {"query": ["fig", "", "cherry"], "top_n": 5}
    assert post(url, "/batch_search", request) == (200, [[document(4)], [], [document(1)]])  # a blank one is searched
    status, (documents, scores) = post(url, "/batch_search", request | {"return_score": True})
    assert (status, documents) == (200, [[document(4)], [], [document(1)]])
    assert [len(row) for row in scores] == [1, 0, 1]
    assert post(url, "/batch_search", {"query": []}) == (200, [])


def test_health_is_research_s(url: str) -> None:
    response = CLIENT.get(url + "/health")
    assert response.json() == {"status": "healthy", "retrievers": {"total": 1, "available": 1}}


@pytest.mark.parametrize(
    ("path", "content", "field"),
    [
        ("/retrieve", {}, "queries"),
        ("/retrieve", {"queries": "apple"}, "queries"),
        ("/retrieve", {"queries": ["a", 5]}, "queries"),
        ("/retrieve", {"queries": ["a"] * 5}, "queries"),
        ("/retrieve", {"queries": ["a"], "topk": 21}, "topk"),
        ("/retrieve", {"queries": ["a"], "topk": -1}, "topk"),
        ("/retrieve", {"queries": ["a"], "topk": "many"}, "topk"),
        ("/retrieve", {"queries": ["a"], "return_scores": None}, "return_scores"),
        ("/search", {"query": ["a"]}, "query"),
        ("/search", {"query": "a", "top_n": 0}, "top_n"),
        ("/batch_search", {"query": "a"}, "query"),
        ("/batch_search", {"query": ["a"], "top_n": 10**30}, "top_n"),
        ("/batch_search", {"query": ["a"], "return_score": "perhaps"}, "return_score"),
    ],
)
def test_a_schema_error_is_422_and_names_the_field(url: str, path: str, content: Any, field: str) -> None:
    status, answer = post(url, path, content)
    assert status == 422
    assert all(field in error["loc"] for error in answer["detail"])
    assert "input" not in answer["detail"][0]


@pytest.mark.parametrize(
    ("body", "kind", "status", "detail"),
    [
        (b"", "application/json", 422, [{"type": "missing", "loc": ["body"], "msg": "Field required"}]),
        (b"null", "application/json", 422, [{"type": "missing", "loc": ["body"], "msg": "Field required"}]),
        (b'{"a"}', "application/json", 422, [NO_COLON]),
        (b"[]", "application/json", 422, [NO_OBJECT]),
        (b'{"queries": ["fig"]}', "text/plain", 422, [NO_OBJECT]),
        (b'{"queries": ["fig"]}', "", 422, [NO_OBJECT]),
        (b'{"queries": ["fig"]}', "application/vnd.api+json; charset=utf-8", 200, None),
        (b'{"queries": ["fig"], "topk": "1", "return_scores": "yes"}', "Application/JSON", 200, None),
        (b'{"queries": ["\xff"]}', "application/json", 400, "There was an error parsing the body"),
    ],
)
def test_a_body_is_read_by_fastapi_s_rules(url: str, body: bytes, kind: str, status: int, detail: Any) -> None:
    response = CLIENT.post(url + "/retrieve", content=body, headers={"content-type": kind})
    assert (response.status_code, response.json().get("detail")) == (status, detail)


def test_a_body_of_a_million_errors_names_the_first() -> None:
    with pytest.raises(HttpRefusal) as caught:
        parse_body(b'{"queries": [' + b"5," * 1_000_000 + b"5]}", "application/json", Retrieve)
    errors = json.loads(bytes(caught.value.response.body))["detail"]
    assert [error["loc"] for error in errors] == [["body", "queries", 0]]


def test_an_unknown_path_and_method_are_refused_as_json(url: str) -> None:
    assert post(url, "/nowhere", {}) == (404, {"detail": "Not Found"})
    response = CLIENT.get(url + "/retrieve")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json() == {"detail": "Method Not Allowed"}
    assert CLIENT.delete(url + "/health").status_code == 405
    head = CLIENT.head(url + "/health")
    assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "application/json")
    assert CLIENT.get(url + "/health/").status_code == 200


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: json.dumps({"queries": [text]}).encode()))
@settings(max_examples=30, deadline=None)
def test_no_body_breaks_it(url: str, body: bytes) -> None:
    assert CLIENT.post(url + "/retrieve", content=body, headers=JSON).status_code in (200, 400, 422)


class Held:
    """A retriever that waits to be let go."""

    searchers = 1
    may_be_brief = False

    def __init__(self) -> None:
        self.go = threading.Event()

    def enter_thread(self) -> None:
        """Nothing to set."""

    def search_encoded(self, queries: Sequence[str], k: int) -> list[Encoded]:
        assert self.go.wait(60)
        return [() for _ in queries]


def test_a_search_that_hangs_is_told_to_who_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Held()
    monkeypatch.setattr("envs.services.retriever.service.make_retriever", lambda *_, **__: search)
    search.go.set()
    server = RetrieverServer(RetrieverServerConfig(corpus="", port=0, deadline_s=0.2))
    url = server.start(CORPUS)
    search.go.clear()
    assert post(url, "/retrieve", {"queries": ["fig"]})[0] == 503
    assert not server.stop()  # so that its process is ended: at exit Python would wait for the thread
    search.go.set()


def test_a_surrogate_and_a_long_query_do_not_harm_others(url: str) -> None:
    before = counted(url, "retriever_queries_cut_total")
    text = '{"queries": ["\\ud800", "cherry", "' + "x" * 40_000 + '"]}'
    response = CLIENT.post(url + "/retrieve", content=text.encode(), headers=JSON)
    assert response.json() == {"result": [[], [document(1)], []]}
    assert counted(url, "retriever_queries_cut_total") == before + 1


def test_a_body_over_the_limit_is_413_stated_or_not(url: str) -> None:
    body = json.dumps({"queries": ["x" * 70_000]}).encode()
    assert CLIENT.post(url + "/retrieve", content=body, headers=JSON).status_code == 413
    chunks = (body[start : start + 1000] for start in range(0, len(body), 1000))
    assert CLIENT.post(url + "/retrieve", content=chunks, headers=JSON).status_code == 413


def test_an_endless_body_is_cut_off(url: str) -> None:
    refused = 'retriever_requests_total{route="/retrieve",status="413"}'
    assert CLIENT.post(url + "/retrieve", content=b" " * 70_000, headers=JSON).status_code == 413  # so that it is there
    before = counted(url, refused)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/retrieve")
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(1 << 40))
    connection.endheaders()
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            connection.send(b" " * (1 << 16))
    connection.close()
    assert counted(url, refused) == before + 1  # by an answer: a server that died counts nothing


def test_a_client_that_goes_away_is_not_counted_as_an_error_of_the_server(url: str) -> None:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as half:
        half.sendall(b"POST /batch_search HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    for _ in range(200):
        text = CLIENT.get(url + "/metrics").text
        if 'route="/batch_search",status="499"' in text:
            break
    assert 'retriever_requests_total{route="/batch_search",status="499"} 1.0' in text
    assert 'route="/batch_search",status="500"' not in text


def test_metrics_count_by_route_and_status(url: str) -> None:
    post(url, "/retrieve", {"queries": ["elder"]})
    post(url, "/retrieve", {"queries": ["elder"]})
    CLIENT.get(url + "/etc/passwd")
    text = CLIENT.get(url + "/metrics").text
    values = {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if not line.startswith("#")}
    assert values['retriever_requests_total{route="/retrieve",status="200"}'] >= 2
    assert values['retriever_requests_total{route="other",status="404"}'] >= 1
    assert values["retriever_cache_hits_total"] >= 1
    assert values["retriever_queue"] == 0
    assert values["retriever_batch_queries_count"] >= 1


def test_a_full_queue_is_503_with_retry_after() -> None:
    search = Held()
    config = RetrieverServerConfig(corpus="", max_queries=2, max_queue=2, max_batch=1)

    async def play() -> None:
        async with RetrieverApp(search, config, None) as app:  # type: ignore[arg-type]
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                tasks = [
                    asyncio.create_task(client.post("/retrieve", json={"queries": [f"q{row}"]})) for row in range(6)
                ]
                _, waiting = await asyncio.wait(tasks, timeout=0.5)
                search.go.set()
                statuses = [(await task).status_code for task in tasks]
                # Whether the first has left the queue before the last arrives is the scheduler's choice.
                assert statuses.count(503) == 6 - len(waiting)
                assert 2 <= len(waiting) <= 3
                refused = next(task.result() for task in tasks if task.result().status_code == 503)
                assert refused.headers["retry-after"] == "1"

    asyncio.run(play())


def test_a_token_is_asked_for_everywhere_but_at_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "s3cret")
    server = RetrieverServer(RetrieverServerConfig(corpus="", port=0, token_env="SOME_TOKEN"))
    url = server.start(CORPUS)
    try:
        assert CLIENT.get(url + "/health").status_code == 200
        assert CLIENT.get(url + "/metrics").status_code == 401
        assert post(url, "/retrieve", {"queries": ["fig"]})[0] == 401
        documents = asyncio.run(search_with(RetrieverClient(url, token="s3cret"), "fig"))
        assert [hit.id for hit in documents] == ["4"]
        with pytest.raises(ToolRefused, match="401") as caught:
            asyncio.run(search_with(RetrieverClient(url, token="wr0ng"), "fig"))
        assert "wr0ng" not in str(caught.value)
    finally:
        server.stop()


async def search_with(client: RetrieverClient, query: str) -> tuple[Document, ...]:
    try:
        return await client.search(query)
    finally:
        await client.close()


def test_the_client_reads_its_own_server(url: str) -> None:
    documents = asyncio.run(search_with(RetrieverClient(url + "/retrieve", topk=2), "cherry"))
    assert [(hit.title, hit.text) for hit in documents] == [("T1", "apple apple cherry")]


@pytest.mark.parametrize(
    "found",
    [
        {"document": {"id": "1", "contents": '"T"\ntext'}, "score": 0.5},
        {"document": {"contents": '"T"\ntext'}},
        {"id": "1", "contents": '"T"\ntext'},
        {"title": "T", "text": "text", "contents": '"T"\ntext'},
        {"document": {"title": "T", "text": "text"}, "score": 1},
        {"id": None, "title": "T", "text": "text", "contents": None},
    ],
)
def test_the_client_reads_every_shape_of_document(found: dict[str, Any]) -> None:
    (document,) = read_answer({"result": [[found]]})
    assert (document.title, document.text) == ("T", "text")
    assert document.id in ("1", "")


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"result": []}, {"result": [[], []]}, {"result": [5]}, {"result": [[5]]}, {"result": [[{}]]}, NULLS],
)
def test_the_client_refuses_another_protocol(answer: Any) -> None:
    with pytest.raises(ValueError, match="the retriever's answer"):
        read_answer(answer)


def test_the_client_is_told_to_come_back() -> None:
    assert [retry_after({"Retry-After": value}) for value in ("7", "soon", "²")] == [7.0, 1.0, 1.0]

    async def play() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Busy\r\nretry-after: 4\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ToolBusy) as caught:
            await search_with(RetrieverClient(f"http://127.0.0.1:{port}"), "fig")
        assert caught.value.after_s == 4.0
        server.close()

    asyncio.run(play())


def test_a_port_in_use_and_a_missing_token_are_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refused("--port", says="in use"):
            take_port("127.0.0.1", port)
    early = RetrieverServer(RetrieverServerConfig(corpus="", port=port))
    late = RetrieverServer(RetrieverServerConfig(corpus="", port=port))  # Linux binds both, while none listens
    early.start(CORPUS)
    with refused("--port", says="in use"):
        late.start(CORPUS)
    assert early.stop()
    with refused("--port"):
        take_port("no.such.host.invalid", 0)
    monkeypatch.delenv("NO_TOKEN", raising=False)
    with refused(says="--token-env: the environment"):
        RetrieverServer(RetrieverServerConfig(corpus="", port=0, token_env="NO_TOKEN"))


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["serve", "retriever"], "required: --corpus"),
        (["serve", "retriever", "--corpus", "c.jsonl", "--retriever", "tfidf"], "invalid choice: 'tfidf'"),
        (["serve", "retriever", "--corpus", "c.jsonl", "--port", "99999"], "port=99999"),
        (["serve", "retriever", "--corpus", "c.jsonl", "topk=5"], "unrecognized argument 'topk=5'"),
        (["serve"], "required: SERVICE"),
        (["index", "--corpus", "/no/such.jsonl", "--index", "x"], "/no/such.jsonl: cannot be read"),
        (["index", "--corpus", "c.jsonl"], "required: --index"),
    ],
)
def test_a_wrong_command_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], part: str) -> None:
    term = signal.getsignal(signal.SIGTERM)
    assert run(argv) == 2
    signal.signal(signal.SIGTERM, term)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert part in err
