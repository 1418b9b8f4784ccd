"""Import poolrl where another version of OpenDP is installed: `other_opendp.py VERSION`."""

from __future__ import annotations

import importlib.metadata
import sys

known = importlib.metadata.version


def version(name: str) -> str:
    return sys.argv[1] if name == "opendp" else known(name)


if __name__ == "__main__":
    importlib.metadata.version = version
    import poolrl

    _ = poolrl.Pool
