"""Files from one node's folder to another's, by Arrow Flight: the only place that knows how weights cross a network.

Measured against Ray's object store and a plain stream of bytes in `benchmarks/transports.py`. Both ends show the run's
token; what it protects crosses the cluster's network in clear.
"""

from __future__ import annotations

import hmac
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

CHUNK_BYTES = 1 << 20  # of one message of a part: a millisecond of 10 Gbit/s, beside which its own cost is nothing
PART = re.compile(r"v-?\d+/[\w-]+\.safetensors")  # all that is given away: nothing above the folder, no draft
SCHEMA = pa.schema([("bytes", pa.large_binary())])
# A connection for each stream: clients of one process would share one, and a single one does not fill the link. A
# cluster's http_proxy is not for what goes between its own nodes.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
HEADER = "authorization"


class SourceFailed(Exception):
    """What was asked for did not come whole from there. Another node may have it."""


class FlightTransfer:
    """Gives away the files of `folder`, and fetches files into it. Many threads may fetch at once."""

    def __init__(self, folder: Path, host: str, token: str, *, announce: str = "") -> None:
        """host: the address to listen on; announce: the one by which other nodes reach it, where that is another."""
        self.folder = folder
        self._word = f"Bearer {token}"
        # It answers from here on. `serve` would only wait and take this process's signals, and when it ends it may shut
        # down another server of the process.
        self._server = _Server(folder, host, self._word)
        self.address = f"grpc://{announce or host}:{self._server.port}"

    def fetch(self, address: str, name: str, size: int, digest: int, timeout_s: float) -> None:
        """Bring the file `name` ("v000017/bucket-003.safetensors") here. Raises SourceFailed, and OSError of this side.

        It has its name only once its bytes and their crc32 are those expected.
        """
        target = self.folder / name
        target.parent.mkdir(mode=0o700, exist_ok=True)  # not the folder itself: a store that stops removes it
        draft = target.with_name(f".{target.name}.tmp")
        checksum = (0, 0)
        try:
            with draft.open("wb", buffering=0) as file:
                for chunk in self._chunks(address, name, timeout_s):
                    file.write(chunk)
                    checksum = checksum[0] + chunk.size, zlib.crc32(chunk, checksum[1])
            if checksum != (size, digest):
                raise SourceFailed(f"{name} from {address}: (bytes, crc32) are {checksum}, expected {(size, digest)}")
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)

    def _chunks(self, address: str, name: str, timeout_s: float) -> Iterator[Any]:
        options = fl.FlightCallOptions(timeout=timeout_s, headers=[(HEADER.encode(), self._word.encode())])
        try:
            with fl.connect(address, generic_options=OWN_CONNECTION) as client:
                for batch in client.do_get(fl.Ticket(name.encode()), options):
                    yield batch.data.column(0).buffers()[2]
        except (pa.ArrowException, OSError) as error:  # Flight's own are one or the other
            message = str(error).partition(". gRPC client")[0].partition(". Detail")[0].strip()
            raise SourceFailed(f"{name} from {address}: {message[:300] or type(error).__name__}") from error

    def close(self) -> None:
        self._server.shutdown()


class _Server(fl.FlightServerBase):
    def __init__(self, folder: Path, host: str, word: str) -> None:
        super().__init__(f"grpc://{host}:0", middleware={"token": _Doorman(word)})
        self._folder = folder

    def do_get(self, context: Any, ticket: Any) -> Any:
        name = ticket.ticket.decode(errors="replace")
        if not PART.fullmatch(name):
            raise fl.FlightServerError("no such part")
        try:
            content = pa.memory_map(os.fspath(self._folder / name)).read_buffer()
        except OSError as error:
            raise fl.FlightServerError(f"no such part: {error.strerror}") from error
        # Made whole here, so that the library streams it without asking Python again. Nothing is copied.
        batches = [
            _make_record_batch(content[start : start + CHUNK_BYTES]) for start in range(0, content.size, CHUNK_BYTES)
        ]
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(SCHEMA, batches))


def _make_record_batch(content: Any) -> Any:
    ends = pa.array([0, content.size], pa.int64()).buffers()[1]
    return pa.record_batch([pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, content])], schema=SCHEMA)


class _Doorman(fl.ServerMiddlewareFactory):
    def __init__(self, word: str) -> None:
        self._word = word.encode()

    def start_call(self, info: Any, headers: Any) -> None:
        header = headers.get(HEADER) or [""]
        if not hmac.compare_digest(header[0].encode(), self._word):
            raise fl.FlightUnauthenticatedError("a wrong token")
