"""WriteToHttp: elements as POST requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.http.sink import AtLeastOnceHttp, check_url
from dataflow.io.message_streams.values import encoder_of
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map
from windowing.timestamps import US_PER_SECOND, DurationLike, to_duration_us

AT_LEAST_ONCE = "at-least-once"


class WriteToHttp(PTransform[PCollection[Any], None]):
    """Send elements by POST, each at least once, with a key by which the receiver knows it again.

    Elements wait in an outbox of the store, and are sent in order.  A request that was not answered with 2xx is sent
    again: with the same body and the same ``Idempotency-Key``, also by another process.  A receiver that keeps the keys
    has each element exactly once; one that does not may have some twice.

    408, 409, 425, 429, 5xx, time-outs and lost connections are tried again, with growing pauses, for as long as it
    takes in a stream; a ``Retry-After`` is kept to, up to 5 s at a time.  Any other answer is a refusal,
    also a redirection: it ends the run, and what waits stays.

    Args:
        url: ``http://`` or ``https://``.
        delivery: ``"at-least-once"``, the only one that there is; so that whoever reads the pipeline knows.
        format: of elements: ``json``, ``text`` or ``bytes``.
        batch: how many elements a request has at most.  1: its body is the element.  More: a JSON array of elements.
        headers: of each request, such as ``{"Authorization": "Bearer ..."}``.
        key: from an element to text; elements of one key keep their order where there are several lanes.  None: equal
            elements do.
        lanes: how many connections send at once; each has one request on its way.
        changelog: the name of a further member of each element, which is a JSON object: 1 where it is emitted, -1 where
            it is retracted.  Without it, input that retracts is refused.
        dead_letters: a folder, where the driver runs, for requests whose content is refused (400, 413, 415, 422): each
            is a JSON file, and those behind it go on.  None: they end the run as other refusals do.
        timeout: how long an answer is waited for (`timedelta`, text, or seconds).
        ca_file: certificates of authorities to trust, in place of the system's.

    Raises:
        PipelineError: an argument does not suit, the input retracts and there is no ``changelog``, or the package
            urllib3 is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        delivery: str,
        format: str = "json",  # noqa: A002 - what it is called elsewhere
        batch: int = 1,
        headers: Mapping[str, str] | None = None,
        key: Callable[[Any], str] | None = None,
        lanes: int = 1,
        changelog: str | None = None,
        dead_letters: str | Path | None = None,
        timeout: DurationLike = 10,
        ca_file: str | Path | None = None,
    ) -> None:
        name = type(self).__name__
        check_url(name, url)
        if delivery != AT_LEAST_ONCE:
            raise PipelineError(
                f"{name} was given delivery={delivery!r}",
                detail="HTTP has nowhere to keep a number, so a request whose answer was lost is sent again",
                hint=f"give {AT_LEAST_ONCE!r}, and have the receiver look at the header Idempotency-Key",
            )
        if batch < 1 or (format != "json" and batch > 1):
            raise PipelineError(
                f"{name} was given batch={batch!r} with the format {format!r}",
                hint="give 1, or with the format 'json' more",
            )
        if changelog is not None and format != "json":
            raise PipelineError(
                f"{name} was given changelog={changelog!r} with the format {format!r}",
                hint="only JSON objects can have a further member",
            )
        timeout_s = to_duration_us(timeout) / US_PER_SECOND
        if timeout_s <= 0:
            raise PipelineError(f"{name} was given timeout={timeout!r}", hint="give a positive one")
        self._encode = _Encoder(encoder_of(name, format), key, changelog)
        self._sink = AtLeastOnceHttp(
            url=url,
            format=format,
            batch=batch,
            headers=dict(headers or {}),
            changelog=changelog,
            dead_letters=None if dead_letters is None else str(dead_letters),
            timeout_s=timeout_s,
            ca_file=None if ca_file is None else str(ca_file),
            lanes=lanes,
        )

    def default_label(self) -> str:
        """``WriteToHttp``; an address may have a secret."""
        return "WriteToHttp"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Encode the elements where they are emitted, and send them."""
        entries = pcoll | "encode" >> Map(self._encode)
        entries | "write" >> Write(self._sink)


@attrs.frozen
class _Encoder:
    encode: Callable[[Any], bytes]
    key: Callable[[Any], str] | None
    changelog: str | None

    def __call__(self, element: Any) -> dict[str, Any]:
        body = self.encode(element)
        if self.changelog is not None and not body.startswith(b"{"):
            raise InputError(
                f"{element!r:.200} is no JSON object, and cannot have a sign",
                hint="convert it to a mapping in a df.Map before",
            )
        key = body.hex() if self.key is None else self.key(element)
        return {"lane_key": key, "body": body}
