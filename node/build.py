"""Makes the probe's zipapp: one file for any node, the same bytes from the same sources."""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_HERE = Path(__file__).resolve().parent


def build_probe() -> bytes:
    """The zipapp with pynvml inside. Raises FileNotFoundError where nvidia-ml-py is not installed here."""
    sources = {f"probe/{path.name}": path.read_bytes() for path in (_HERE / "probe").glob("*.py")}
    sources["__main__.py"] = sources.pop("probe/__main__.py")
    sources["pynvml.py"] = _pynvml().read_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, sources[name])
    return b"#!/usr/bin/env python3\n" + content.getvalue()


def _pynvml() -> Path:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pynvml (the package nvidia-ml-py) is not installed here")
    return Path(spec.origin)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the node probe as one file.")
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    output.write_bytes(build_probe())
    output.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
