"""What a server says of itself at /metrics, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CLIENT_GONE = 499  # nginx's number: nobody was left to answer
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One registry per server: two servers in a process do not add up."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        requests = Counter(
            "retriever_requests", "Requests by route and status", ["route", "status"], registry=self._registry
        )
        latency = Histogram(
            "retriever_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=self._registry
        )
        # The library makes texts of the labels each time, which costs as much as all the rest of a count.
        self._requests, self._latency = cache(requests.labels), cache(latency.labels)
        self.queries = Counter("retriever_queries", "Queries asked", registry=self._registry)
        self.cut = Counter("retriever_queries_cut", "Queries longer than max_query_chars", registry=self._registry)
        self.cache_hits = Counter("retriever_cache_hits", "Queries answered from the cache", registry=self._registry)
        self.shared = Counter("retriever_shared", "Queries that joined an equal one under way", registry=self._registry)
        self.batch = Histogram(
            "retriever_batch_queries", "Queries searched at once", buckets=QUERIES, registry=self._registry
        )
        self.search = Histogram(
            "retriever_search_seconds", "Time of one batch", buckets=SECONDS, registry=self._registry
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """`route` is one of few."""
        self._requests(route, status).inc()
        self._latency(route).observe(seconds)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when asked."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self._registry)
