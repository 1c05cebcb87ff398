"""StageClocks: the clocks of one step of a stage."""

import attrs

from triggers.clocks import Clocks


@attrs.frozen(kw_only=True)
class StageClocks(Clocks):
    """The clocks of one step of a stage, all in microseconds; the watermark is the stage's input watermark.

    Attributes:
        output_watermark_us: the output watermark that the stages downstream have received so far, so what this step
            emits ahead of it cannot be late for them.
    """

    output_watermark_us: int

    @classmethod
    def of_source(cls, *, watermark_us: int, now_us: int) -> "StageClocks":
        """The clocks of a stage that reads, which holds nothing back.

        Args:
            watermark_us: its watermark before this step, in microseconds.
            now_us: the processing time, in microseconds.
        """
        return cls(watermark_us=watermark_us, output_watermark_us=watermark_us, now_us=now_us)
