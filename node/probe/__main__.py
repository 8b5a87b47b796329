"""Entry of the zipapp. It is parsed by whatever Python the node has, so it says what is missing instead of failing."""

# an old Python must get as far as the first check, so there is no newer syntax here
# ruff: noqa: PTH100, PTH102, PTH104, PTH112, PTH120, UP032, UP036

import importlib
import os
import stat
import sys

if sys.version_info < (3, 8):
    sys.stderr.write("the probe needs Python 3.8 or newer, this is {}\n".format(sys.version.split()[0]))
    sys.exit(84)


def private(folder):  # type: (str) -> bool
    """Does `folder` belong to this user, with nobody else able to write there?"""
    state = os.lstat(folder)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022


def unpack(archive):  # type: (str) -> str
    """A folder with the archive's modules, so that Python keeps them compiled; the archive where that cannot be had.

    Compiling them anew costs a tenth of a second of processor time at each run.
    """
    folder = archive + ".d"
    try:
        if not private(os.path.dirname(os.path.abspath(archive))):
            return archive
        if not os.path.isdir(folder):
            import zipfile

            fresh = "{}.{}".format(folder, os.getpid())
            os.mkdir(fresh, 0o700)
            with zipfile.ZipFile(archive) as content:
                content.extractall(fresh)
            os.rename(fresh, folder)
        return folder if private(folder) else archive
    except OSError:
        return archive


sys.path.insert(0, unpack(sys.argv[0]))

sys.exit(importlib.import_module("probe.main").main(sys.argv[1:]))
