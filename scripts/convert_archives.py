"""Bring archived runs to the third version of the streams: names of options, new fingerprints.

    python scripts/convert_archives.py outputs/reference/*/runs.zip

Each part of a stored configuration gets the name of its option and the present path of its class; the
folder of a run gets the fingerprint that follows, also in the tables beside an archive. A configuration
that has names already is left as it is, so the script may run twice. Numbers of runs are not touched.
"""

from __future__ import annotations

import re
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedpriv.common.config import fingerprint, flatten, identity_of_values
from fedpriv.common.files import write_atomically
from fedpriv.common.groups import GROUPS, OPTION, TARGET, conf_dir

_TIME = (1980, 1, 1, 0, 0, 0)  # as pack_runs has it


@cache
def options_by_class(group: str) -> dict[str, list[tuple[str, str]]]:
    """Return (option, class path) of the parts in the YAMLs of a group, by the name of the class."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((conf_dir() / group).glob("*.yaml")):
        flat = flatten(yaml.safe_load(path.read_text("utf-8")) or {})
        for key, target in flat.items():
            option = flat.get(f"{key.removesuffix(TARGET)}{OPTION}")
            if key.endswith(TARGET) and option is not None:
                found.setdefault(str(target).rpartition(".")[2], []).append(
                    (str(option), str(target))
                )
    return found


def name_parts(node: dict[str, Any], group: str) -> None:
    """Give a part of a stored configuration, and the parts in it, the names of their options."""
    for key, value in list(node.items()):
        if isinstance(value, dict):
            name_parts(value, group)
        if key == TARGET and OPTION not in node:
            known = dict(options_by_class(group)[str(value).rpartition(".")[2]])
            # Several algorithms share a class, and their names tell which one it is.
            option = node["name"] if node.get("name") in known else next(iter(known))
            node[TARGET] = known[option]
            node[OPTION] = option


def convert(archive: Path) -> None:
    """Convert an archive, and the folder names in the tables beside it."""
    with zipfile.ZipFile(archive) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    renamed = {}
    for name in [name for name in files if name.endswith("/config.yaml")]:
        config = yaml.load(files[name], yaml.CSafeLoader)
        for group in GROUPS:
            if isinstance(config.get(group), dict):
                name_parts(config[group], group)
        shares = config["algorithm"]
        if shares.get("wrap_limit") == 1e-3:  # the meaning of null by now
            shares["wrap_limit"] = None
            if shares["shares"] == "continuous":
                shares["bits"] = None
        files[name] = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False).encode()
        identity = identity_of_values(flatten(config))
        named = f"{identity['algorithm.name']}-{identity['dataset']}-seed{identity['seed']}"
        renamed[name.partition("/")[0]] = f"{named}-{fingerprint(identity)}"

    def write(file: Any) -> None:
        with zipfile.ZipFile(file, "w") as packed:
            for name, content in files.items():
                folder, _, rest = name.partition("/")
                entry = zipfile.ZipInfo(f"{renamed[folder]}/{rest}", _TIME)
                packed.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)

    assert len(set(renamed.values())) == len(renamed), f"{archive}: two runs would have one folder"
    write_atomically(archive, write, "wb")
    for table in [*archive.parent.rglob("*.csv"), *archive.parent.rglob("*.md")]:
        text = table.read_text("utf-8")
        new = re.sub(r"[\w]+-\w+-seed\d+-[0-9a-f]{12}", lambda m: renamed.get(m[0], m[0]), text)
        if new != text:
            table.write_text(new, "utf-8")
    print(f"{archive}: {len(renamed)} runs")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        convert(Path(path))
