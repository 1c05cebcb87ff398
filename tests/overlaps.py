"""How much two boxes of a picture have in common."""

from runners.observability.drawing.labels import PixelBox


def overlap(one: PixelBox, other: PixelBox, clearance: float = 0.0) -> float:
    """The area that both have.

    Args:
        one: a box.
        other: another one.
        clearance: what is wider, and higher, by so many pixels than it is.
    """
    width = min(one.right, other.right) - max(one.left, other.left) + clearance
    height = min(one.bottom, other.bottom) - max(one.top, other.top) + clearance
    return max(width, 0.0) * max(height, 0.0)
