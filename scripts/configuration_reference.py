"""Write docs/configuration.md: every value of gsslam/config.py, with what its comment says.

Run: make docs (or python -m scripts.configuration_reference)
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gsslam import config
from gsslam.presets import load_preset, preset_names

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_BEGINNING = """\
# Configuration

<!-- Written by `make docs` from the comments in gsslam/config.py; changes belong there. -->

Every number that decides a run, apart from its input. On the command line each is an option:

    gsslam run --tracking.iterations 8 --keyframes.max-interval 6

In a YAML file, which `--preset FILE` takes, they are nested by section:

```yaml
tracking:
  iterations: 8
keyframes:
  max_interval: 6
```

and in Python they are fields of `gsslam.SlamConfig`. A run writes all of them into its \
`config.yaml`, which is such a file too. Order of precedence: options, then the preset, then the \
defaults below. A value that is unknown or out of its range is an error of one line.

What decides how a run goes but not what comes out (device, threads, folders) is an option of \
`gsslam run` alone: `gsslam run --help`.
"""

_ABOUT_PRESETS = """\
`gsslam run --preset NAME`; without it, the dataset's family decides, where there is a preset of \
its name. Why each changes what it changes is said in `configs/NAME.yaml`."""

# How each bound of annotated_types is written.
_BOUNDS = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}"}


def page() -> str:
    """Return the whole page."""
    sections = [_section(name, hint) for name, hint in get_type_hints(config.SlamConfig).items()]
    return "\n".join([_BEGINNING, *filter(None, sections), _single_values(), _presets()])


def comments(section: type) -> dict[str, str]:
    """Return the comment above each field of a dataclass, as one line."""
    source = inspect.getsource(section)
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = node.lineno - 1
            while lines[above - 1].lstrip().startswith("#"):
                above -= 1
            text = (
                line.strip().removeprefix("#").strip() for line in lines[above : node.lineno - 1]
            )
            found[node.target.id] = " ".join(text)
    return found


def allowed(hint: Any) -> str:
    """Return the kind and range of a field's value, such as ``number > 0``."""
    kind, *annotations = get_args(hint) or (hint,)
    name = {float: "number", int: "integer", bool: "true or false", str: "text"}[kind]
    bounds = [
        template.format(f"{getattr(bound, key):g}")
        for annotation in annotations
        for bound in annotation.metadata
        for key, template in _BOUNDS.items()
        if hasattr(bound, key)
    ]
    return " ".join([name, ", ".join(bounds)]).strip()


def _section(name: str, section: Any) -> str:
    if not isinstance(section, type) or section.__module__ != config.__name__:
        return ""
    summary = (section.__doc__ or "").splitlines()[0]
    return "\n".join([f"## {name}", "", summary, "", *_table(section, f"{name}.")]) + "\n"


def _single_values() -> str:
    return "\n".join(["## Without a section", "", *_table(config.SlamConfig, "")]) + "\n"


def _table(section: type, prefix: str) -> list[str]:
    hints, about = get_type_hints(section, include_extras=True), comments(section)
    rows = ["| value | default | allowed | what it does |", "| --- | --- | --- | --- |"]
    for entry in fields(section):
        if entry.default is MISSING:
            continue
        key = f"`{prefix}{entry.name}`"
        cells = [key, _value(entry.default), allowed(hints[entry.name]), about[entry.name]]
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return rows


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else text


def _presets() -> str:
    default = _flat(asdict(config.SlamConfig()))
    lines = [
        "## Presets",
        "",
        _ABOUT_PRESETS,
        "",
        "| preset | what differs from the defaults |",
        "| --- | --- |",
    ]
    for name in preset_names():
        values = _flat(asdict(load_preset(name)))
        changed = [f"`{key}` {_value(v)}" for key, v in values.items() if v != default[key]]
        lines.append(f"| `{name}` | {', '.join(changed) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
