"""What keeps what is served to those who may see it, whatever it is.

GET only; another `Host` than those that are expected is refused, so that no site can have a browser read it under a
name of its own; scripts and styles are those of this package alone.  Where a token is needed a browser has it in a
cookie, and a program in the header ``Authorization: Bearer``.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote, urlencode

import attrs
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

_COOKIE = "dataflow_ui_token"
_BEARER = "bearer "
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Access:
    """Who may see what is served, and what of it.

    Attributes:
        hosts: names under which it may be asked for, without the port.
        token: that the cookie or the header has to have; None: none is needed.
        show_keys: whether keys, records and what errors say of them are shown.
    """

    hosts: Sequence[str] = ("127.0.0.1", "localhost")
    token: str | None = None
    show_keys: bool = False

    def middleware(self) -> list[Middleware]:
        """What an application begins with."""
        return [
            Middleware(_Guard, token=self.token),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(self.hosts), www_redirect=False),
        ]


def path_of(request: Request) -> str:
    """The path of an address as it was asked for, quoted.

    Args:
        request: for the address.
    """
    raw: bytes = request.scope["raw_path"]
    return raw.partition(b"?")[0].decode("ascii", "replace")


def _distinct(scope: _Message) -> str:
    """The path of an address, in which what was quoted in a name still differs from what divides names.

    A slash or dot of a name is quoted (`runners.ui.templating.address`); servers decode the path as a whole.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("ascii", "replace")
    return re.sub(r"[^/.]+", lambda part: _decoded(part[0]), path)


def _decoded(part: str) -> str:
    return unquote(part).replace("%", "%25").replace("/", "%2F").replace(".", "%2E")


class _Guard:
    """Refuses what is no GET and who has no token, and sets the headers of all answers."""

    def __init__(self, app: Any, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        scope = {**scope, "path": _distinct(scope)}
        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page is only read\n", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            # The token must not stay in the address, which people pass on.
            left = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
            query = f"?{urlencode(left)}" if left else ""
            found = RedirectResponse(f"/{path_of(request).lstrip('/')}{query}", 303)
            found.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
            return found
        header = request.headers.get("authorization", "")
        of_header = header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
        if self._is_token(request.cookies.get(_COOKIE, "")) or self._is_token(of_header):
            return None
        return PlainTextResponse(
            "a token is needed: open the address that dataflow ui has printed, or send the header "
            "Authorization: Bearer TOKEN\n",
            401,
        )

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())
