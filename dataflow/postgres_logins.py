"""Logins that a Postgres server refuses: what is known of them before there is a session, which is words alone.

No SQLSTATE reaches the client before.  A phrase that is missed, of a translated server, only makes a hopeless attempt
last until the time of whoever waits is over.
"""

#: A server that is not there yet, goes away, or is short of something, as opposed to one that refuses.
_PASSING = (
    "the database system is",
    "terminating connection",
    "too many clients",
    "too many connections",
    "connection slots",
    "max_wal_senders",
    "canceling authentication due to timeout",
    "No space left on device",
)
#: The server wants a password, and libpq has none to send.
_WITHOUT_PASSWORD = "no password supplied"  # noqa: S105 - words of libpq


def is_login_refused(reason: str) -> bool:
    """Whether a server is there and lets nobody in with this address, so that only a person can help.

    The password is wrong or missing, the role or the database is not there, or the server's rules refuse the two.

    Args:
        reason: what libpq says about a connection that failed.
    """
    if any(words in reason for words in _PASSING):
        return False
    return "FATAL:" in reason or _WITHOUT_PASSWORD in reason
