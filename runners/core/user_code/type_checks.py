"""Checks elements against the types that are known of them, where a run was asked for that.

A check looks at a collection, before what consumes it; which code made the elements, and which takes them, makes no
difference.  Of an iterable that is no collection, such as a generator, what it gives is not looked at.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.errors import TransformError
from dataflow.graph import TypeCheck
from dataflow.type_hints import text_of, type_of
from dataflow.views import WithViews
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown


@attrs.frozen
class TypeChecker:
    """One check, of all elements of a bundle.

    Attributes:
        check: what is checked.
        mismatch: why a value is not of a type, or None if it is.
    """

    check: TypeCheck
    mismatch: Callable[[Any, Any], str | None]

    @classmethod
    def all_of(cls, checks: Sequence[TypeCheck]) -> "list[TypeChecker]":
        """A checker for each check; the library that compares is imported where there is one."""
        if not checks:
            return []
        mismatch = _mismatch()
        return [cls(each, mismatch) for each in checks]

    def __call__(self, bundle: Bundle) -> None:
        """Check a bundle.

        Raises:
            TransformError: an element is not of the type.
        """
        hint, mismatch = self.check.hint, self.mismatch
        for value in bundle.values:
            element = value.element if type(value) is WithViews else value
            why = mismatch(element, hint)
            if why is not None:
                raise self._refusal(element, why)

    def _refusal(self, element: Any, why: str) -> TransformError:
        wanted, found = text_of(self.check.hint), text_of(type_of(element))
        if self.check.is_taken:
            fact = f"{self.check.transform} takes {wanted}, and was given {found}"
        else:
            fact = f"{self.check.transform} is to emit {wanted}, and emitted {found}"
        return TransformError(
            fact,
            detail=f"element: {shown(element)}; {why}",
            hint="correct the code, or the type in its annotation; types are checked because of check_types",
        )


def _mismatch() -> Callable[[Any, Any], str | None]:
    import typeguard  # noqa: PLC0415 - a run that checks nothing does not import it

    all_items = typeguard.CollectionCheckStrategy.ALL_ITEMS
    ignore = typeguard.ForwardRefPolicy.IGNORE

    def mismatch(value: Any, hint: Any) -> str | None:
        try:
            typeguard.check_type(
                value, hint, forward_ref_policy=ignore, collection_check_strategy=all_items
            )
        except typeguard.TypeCheckError as error:
            return str(error)
        return None

    return mismatch
