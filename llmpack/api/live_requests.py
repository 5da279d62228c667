"""Which requests of an engine are live, by the ids of their callers."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from llmpack.api.outputs import RequestId
from llmpack.errors import DuplicateRequest, RequestError
from llmpack.runtime.stream import Stream


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One request from its arrival to its last output.

    Attributes:
        request_id: The caller's.
        stream: None while its prompt is being encoded.
        is_aborted: It was to end before it had a stream.
    """

    request_id: RequestId
    stream: Stream | None = None
    is_aborted: bool = False

    def attach(self, stream: Stream) -> None:
        """Lets `abort` reach the stream, an abort that came earlier included."""
        self.stream = stream
        if self.is_aborted:
            stream.abort()

    def abort(self) -> None:
        """Ends the request, now or as soon as it has a stream; idempotent."""
        self.is_aborted = True  # before the look at the stream: attach looks the other way round
        if self.stream is not None:
            self.stream.abort()


class LiveRequests:
    """The live requests; may be used from several threads. The int 1 and the string "1" are two ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[RequestId, LiveRequest] = {}

    def claim(self, request_id: RequestId) -> LiveRequest:
        """A new live request.

        Raises:
            DuplicateRequest: The id is live already.
            RequestError: It is no id.
        """
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            raise RequestError("not a request id", param="request_id", given=request_id, allowed="a string or an int")
        live = LiveRequest(request_id)
        with self._lock:
            if self._by_id.setdefault(request_id, live) is not live:
                raise DuplicateRequest(
                    "the request id is in use", param="request_id", given=request_id, allowed="an id that is not live"
                )
        return live

    def release(self, live: LiveRequest) -> None:
        """Makes the id free again; does nothing the second time."""
        with self._lock:
            if self._by_id.get(live.request_id) is live:
                del self._by_id[live.request_id]

    def abort(self, request_id: RequestId) -> None:
        """Ends the request of this id if it is live."""
        with self._lock:
            live = self._by_id.get(request_id)
        if live is not None:
            live.abort()
