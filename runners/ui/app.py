"""The addresses of the page; `guard.py` keeps them to those who may see them."""

from collections.abc import Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from dataflow.errors import DataflowError
from runners.core.ground.clock import Clock
from runners.errors import JobUnknownError, UnknownTransformError
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.ui.guard import Access, path_of
from runners.ui.metrics_site import metrics_route
from runners.ui.pages import PageMaker
from runners.ui.reads import QUERIES, Reads
from runners.ui.recorded import AskedRow
from runners.ui.sampling import Sampling
from runners.ui.templating import render

_STATIC = files(__package__) / "static"
_TYPES = {"css": "text/css", "js": "text/javascript", "txt": "text/plain", "svg": "image/svg+xml"}
#: By names of files, so that nothing but them can be asked for.
_FILES = {path.name: path for path in _STATIC.iterdir() if path.is_file()}


def make_app(store: ReadOnlyStore, clock: Clock, access: Access) -> Starlette:
    """The application; samples are taken while it runs.

    Args:
        store: what it shows.
        clock: that of this machine.
        access: who may see it.
    """
    reads = Reads(store, clock)
    sampling = Sampling(reads)
    site = _Site(PageMaker(reads, sampling, show_keys=access.show_keys), access)

    @asynccontextmanager
    async def running(_: Starlette) -> Any:
        sampling.start()
        yield
        sampling.stop()
        store.close()

    return Starlette(
        routes=[metrics_route(store, clock), *site.routes()],
        lifespan=running,
        middleware=access.middleware(),
    )


class _Site:
    """The pages at their addresses."""

    def __init__(self, pages: PageMaker, access: Access) -> None:
        self._pages, self._access = pages, access

    def routes(self) -> list[Route]:
        """All addresses; each page is JSON, too, with ``.json`` behind it, where a name has no dot that is plain."""
        pages: dict[str, tuple[str, Callable[[Request], object]]] = {
            "/jobs": ("overview.html", lambda _: self._pages.overview()),
            "/jobs/{job}": (
                "job.html",
                lambda r: self._pages.job(_job(r), r.query_params.get("transform")),
            ),
            "/jobs/{job}/windows": (
                "windows.html",
                lambda r: self._pages.windows(_job(r), r.query_params.get("key") or None),
            ),
            "/jobs/{job}/rows": ("rows.html", lambda r: self._pages.rows(_job(r), _asked(r))),
            "/jobs/{job}/kept": ("kept.html", lambda r: self._pages.kept(_job(r))),
            "/jobs/{job}/ranges": ("ranges.html", lambda r: self._pages.ranges(_job(r))),
            "/jobs/{job}/workers": ("workers.html", lambda r: self._pages.workers(_job(r))),
            "/jobs/{job}/events": ("events.html", lambda r: self._pages.events(_job(r))),
        }
        routes = [
            Route("/", lambda _: RedirectResponse("/jobs"), methods=["GET"]),
            Route("/static/{name}", _file, methods=["GET"]),
            Route("/sql/{name}.json", partial(self._sql, as_json=True), methods=["GET"]),
            Route("/sql/{name}", self._sql, methods=["GET"]),
        ]
        for path, (template, make) in reversed(pages.items()):
            routes.append(Route(f"{path}.json", self._endpoint(None, make), methods=["GET"]))
            routes.append(Route(path, self._endpoint(template, make), methods=["GET"]))
        return routes

    def _endpoint(
        self, template: str | None, make: Callable[[Request], object]
    ) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                page = make(request)
            except DataflowError as error:
                return self._failed(request, error, as_json=template is None)
            if template is None:
                return _json(page)
            return _html(render(template, self._values(request, page=page)))

        return answer

    def _values(self, request: Request, **values: object) -> dict[str, object]:
        query = dict(request.query_params)
        is_live = query.get("refresh") != "off"
        other = {**query, "refresh": "off"}
        if not is_live:
            del other["refresh"]
        path = path_of(request)
        as_json = f"{path}.json" + (f"?{urlencode(query)}" if query else "")
        return {
            "is_live": is_live,
            "other_refresh": f"{path}?{urlencode(other)}",
            "as_json": as_json,
            "path": path,
            "shows_keys": self._access.show_keys,
            **values,
        }

    def _failed(self, request: Request, error: DataflowError, *, as_json: bool) -> Response:
        is_missing = isinstance(error, JobUnknownError | UnknownTransformError)
        status = 404 if is_missing else 503
        if as_json:
            return _json({"error": str(error)}, status)
        return _html(
            render("error.html", self._values(request, error=error, status=status)), status
        )

    def _sql(self, request: Request, *, as_json: bool = False) -> Response:
        name = request.path_params["name"]
        if name not in QUERIES:
            return PlainTextResponse("there is no such statement\n", 404)
        job = request.query_params.get("job")
        # As psql takes it: \set job 'NAME' and :'job'.
        text = _for_psql(QUERIES[name])
        if as_json:
            return _json({"name": name, "job": job, "sql": text})
        values = self._values(request, name=name, job=job, text=text)
        return _html(render("sql.html", values))


def _job(request: Request) -> str:
    return unquote(str(request.path_params["job"]))


def _asked(request: Request) -> AskedRow | None:
    """The row or pane that is asked for; None: none, or it is not said completely."""
    given = request.query_params
    key, table = given.get("key", ""), given.get("table", "")
    if table:
        return AskedRow(table=table, key=key) if key else None
    try:
        start_us, end_us, index = [int(given[name]) for name in ("start", "end", "index")]
    except (KeyError, ValueError):
        return None
    return AskedRow(
        table=None,
        key=key,
        transform=given.get("transform", ""),
        start_us=start_us,
        end_us=end_us,
        index=index,
    )


def _file(request: Request) -> Response:
    path = _FILES.get(request.path_params["name"])
    if path is None:
        return PlainTextResponse("there is no such file\n", 404)
    kind = _TYPES.get(path.name.rpartition(".")[2], "text/plain")
    return Response(path.read_bytes(), media_type=kind)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type="application/json")


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")


def _for_psql(text: str) -> str:
    for name in ("job", "key", "hashes", "kind", "transform"):
        text = text.replace(f"%({name})s", f":'{name}'")
    return text
