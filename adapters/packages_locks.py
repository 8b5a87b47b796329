"""Looking for the holders of a package manager's locks: nothing is locked for it, and nothing is changed.

Sources: apt and dpkg lock by fcntl (apt.conf(5) `DPkg::Lock`, dpkg's frontend lock of 1.19.1); dnf 4 writes its
process into `*_lock.pid` (dnf/lock.py); dnf 5 and rpm lock a file by fcntl (libdnf5's transaction, rpm's
`%_rpmlock_path`). Locks are read from proc_locks(5), whose processes are believed where they have the file open.
"""

from __future__ import annotations

from fleet.package_locks import END, LockHolder, read_lock_holders
from fleet.ports import Host

APT_LOCKS = (
    *("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"),
    *("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"),
)
RPM_LOCKS = (
    *("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock", "/run/dnf/rpmtransaction.lock"),
    *("/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid"),
)
_TAB = "\t"
_SCRIPT = (
    "export LC_ALL=C; test -r /proc/self/stat && test -r /proc/locks || exit 75; "
    'for file do case $file in *.pid) pid=$(cat "$file" 2>/dev/null); '
    f'test -n "$pid" && test -d "/proc/$pid/fd" && printf \'%s{_TAB}%s\\n\' "$pid" "$file";; '
    '*) real=$(readlink -f "$file" 2>/dev/null) && inode=$(stat -c %i "$real" 2>/dev/null) || continue; '
    'grep -q "WRITE .*:$inode " /proc/locks || continue; '
    'find /proc/[0-9]*/fd -maxdepth 1 -lname "$real" 2>/dev/null '
    f"| sed -e 's,^/proc/\\([0-9]*\\)/.*,\\1,' | sort -u | while read -r pid; do "
    f'printf \'%s{_TAB}%s\\n\' "$pid" "$file"; done;; esac; done '
    f"| while IFS='{_TAB}' read -r pid file; do name=$(cat \"/proc/$pid/comm\" 2>/dev/null) || continue; "
    f'printf \'lock{_TAB}%s{_TAB}%s{_TAB}%s\\n\' "$pid" "$name" "$file"; done; echo {END}'
)
_SECONDS = 60.0


def read_locks(host: Host, files: tuple[str, ...]) -> tuple[LockHolder, ...] | None:
    """Who holds one of the lock files; None where the host cannot tell. Raises what the host raises."""
    return read_lock_holders(host.run(("sh", "-c", _SCRIPT, "gpufleet-locks", *files), _SECONDS).stdout)
