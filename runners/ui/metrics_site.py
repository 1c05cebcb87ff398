"""The address that Prometheus asks: on the page, and alone."""

from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runners.core.ground.clock import Clock
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.observability.metrics.collector import Exposition, StoreCollector
from runners.observability.metrics.readout import read_out
from runners.ui.guard import Access


def metrics_route(store: ReadOnlyStore, clock: Clock) -> Route:
    """``/metrics``: an answer also where the store gives none.

    Args:
        store: that is read each time, but for those who ask in the same second.
        clock: that of this machine.
    """
    exposition = Exposition(StoreCollector(lambda: read_out(store), clock))

    def answer(request: Request) -> Response:
        body, kind = exposition.answer(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    return Route("/metrics", answer, methods=["GET"])


def make_metrics_app(store: ReadOnlyStore, clock: Clock, access: Access) -> Starlette:
    """An application with that address alone.

    Args:
        store: what is measured.
        clock: that of this machine.
        access: who may ask.
    """

    @asynccontextmanager
    async def running(_: Starlette) -> Any:
        yield
        store.close()

    return Starlette(
        routes=[metrics_route(store, clock)], lifespan=running, middleware=access.middleware()
    )
