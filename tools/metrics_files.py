"""Write what is made of the table of metrics: ``python -m tools.metrics_files``, after that table has changed."""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from runners.observability.metrics.documents import (
    DASHBOARD_FILE,
    RULES_FILE,
    alert_rules,
    dashboard,
    reference,
)

ROOT = Path(__file__).parents[1]
_GENERATED = ROOT / "runners" / "observability" / "metrics" / "generated"
_HEADER = "# Made by python -m tools.metrics_files: change runners/observability/metrics/metric_table.py instead.\n"


def contents() -> Mapping[Path, str]:
    """What is to be in each file."""
    rules = yaml.safe_dump(alert_rules(), sort_keys=False, width=110)
    return {
        ROOT / "docs" / "metrics.md": reference(),
        _GENERATED / DASHBOARD_FILE: f"{json.dumps(dashboard(), indent=1)}\n",
        _GENERATED / RULES_FILE: _HEADER + rules,
    }


if __name__ == "__main__":
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
