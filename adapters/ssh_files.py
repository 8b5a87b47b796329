"""One file over an open SSH channel: by SFTP, else through the standard input of a shell."""

from __future__ import annotations

import posixpath

import paramiko

MAKE_FOLDER = 'umask 077; mkdir -p "$1"'
RECEIVE = 'umask 077; cat > "$1"'
CHECK_AND_MOVE = (
    'got=$(sha256sum < "$1") && test "${got%% *}" = "$3" && chmod 600 "$1" && mv -f "$1" "$2" '
    '|| { rm -f "$1"; echo "sha256 ${got%% *}, wanted $3" >&2; exit 65; }'
)
"""Arguments: the file as it arrived, its place, its SHA-256. Nothing is left where the digest is another one."""


def sftp_write(channel: paramiko.Channel, path: str, content: bytes) -> bool:
    """Write the file; False where the node offers no SFTP that works (none at all, or its shell prints a banner).

    Raises OSError where SFTP works and refuses (permission, no space), and where the connection breaks.
    """
    try:
        channel.invoke_subsystem("sftp")
        client = paramiko.SFTPClient(channel)
    except (paramiko.SSHException, paramiko.SFTPError, EOFError, UnicodeDecodeError):
        return False
    with client, client.open(path, "wb") as file:
        file.set_pipelined(True)
        file.write(content)
    return True


def folder_of(path: str) -> str:
    return posixpath.dirname(path) or "."
