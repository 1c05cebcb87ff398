"""What clients of lakes raise where a place has answered, and refuses: as opposed to one that does not answer.

The clients raise the same exceptions for both, so their words tell which it is.  A phrase that is missed, of a newer
client, only makes a hopeless table be tried again for ever, with a warning.
"""

from __future__ import annotations

import re

from dataflow.errors import DataflowError, TableFileError, TableNotOpenedError
from dataflow.io.outages import in_one_line
from dataflow.postgres_logins import is_login_refused
from windowing.errors import error_text

_REFUSED = re.compile(
    # Object stores, by the clients of Delta (object_store) and of Iceberg (pyarrow), and catalogues by HTTP.
    r"40[134] (Unauthorized|Forbidden|Not Found)|HTTP status 40[134]"
    r"|ACCESS_DENIED|NO_SUCH_BUCKET|UnauthorizedError|ForbiddenError"
    r"|PERMISSION_DENIED|UNAUTHENTICATED|google::cloud::Status\(NOT_FOUND"
    # Folders, and tables of a catalogue in a database.
    r"|(?i:permission denied|access denied)"
)


def is_refusal(error: BaseException) -> bool:
    """Whether a table, its place or its catalogue has answered, and refuses or does not have it.

    Args:
        error: of opening or reading a table.
    """
    if isinstance(error, TableFileError):
        return True
    if isinstance(error, TableNotOpenedError) and error.__cause__ is None:
        return True
    reason = in_one_line(error.detail if isinstance(error, DataflowError) else error_text(error))
    return _REFUSED.search(reason) is not None or is_login_refused(reason)
