"""Jobs that run detached on a host: started once under a name, found again by any later connection.

A job's folder is /var/lib/gpufleet/jobs/ID. It appears by one rename, with the process's mark in it: whoever starts
the same job meanwhile finds the name taken, and ends without having run anything. A start that was cut before the
rename leaves no job, and may be repeated.
"""

from __future__ import annotations

from fleet.driver_jobs import HostJob, is_job_id, read_job
from fleet.errors import ConfigurationError, TransientError
from fleet.ports import Host

JOBS = "/var/lib/gpufleet/jobs"

# The runner leads a session of its own; the mark is its process, its start and the boot, so that none is mistaken.
_RUNNER = (
    "new=$1 dir=$2; shift 2; "
    "started=$(sed -e 's/.*) //' /proc/$$/stat 2>/dev/null | cut -d' ' -f20); "
    "boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null); "
    'echo "$$ ${started:--} ${boot:--}" >"$new/process"; : >"$new/output"; '
    'mv -T "$new" "$dir" 2>/dev/null || { rm -rf "$new"; exit 0; }; '
    '"$@" >>"$dir/output" 2>&1 </dev/null; code=$?; '
    'echo "$code" >"$dir/code.new" && mv "$dir/code.new" "$dir/code"'
)
START = (
    f"umask 077; base={JOBS}; id=$1; shift; dir=$base/$id; "
    'mkdir -p "$base" || exit 73; test -e "$dir" && exit 0; '
    'new=$(mktemp -d "$base/.new.XXXXXX") || exit 73; '
    f"setsid sh -c '{_RUNNER.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' "
    'gpufleet-job "$new" "$dir" "$@" </dev/null >/dev/null 2>&1 & '
    'n=0; while test ! -e "$dir" && test $n -lt 100; do sleep 0.05; n=$((n+1)); done; test -e "$dir" || exit 74'
)
READ = (
    f"export LC_ALL=C; dir={JOBS}/$1; code=null; "
    'if test ! -e "$dir/process"; then state=absent; '
    'elif test -s "$dir/code"; then state=ended; code=$(cat "$dir/code"); '
    'else state=lost; read -r pid started boot <"$dir/process"; '
    "now=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null); "
    'if test "${now:--}" = "$boot"; then '
    "if test -r /proc/self/stat; then "
    "for stat in /proc/[0-9]*/stat; do "
    "line=$(cat $stat 2>/dev/null) || continue; set -- ${line##*) }; "
    'test "$1" != Z && test "$4" = "$pid" && state=running && break; done; '
    "if test $state = running && test -r /proc/$pid/stat; then line=$(cat /proc/$pid/stat); set -- ${line##*) }; "
    'shift 19; test "$1" = "$started" || state=lost; fi; '
    'elif kill -0 "$pid" 2>/dev/null; then state=running; fi; fi; '
    # it may have ended between the two looks
    'if test -s "$dir/code"; then state=ended; code=$(cat "$dir/code"); fi; fi; '
    'printf \'{"state": "%s", "code": %s, "tail": "\' $state $code; '
    'test -r "$dir/output" && tail -c 4000 "$dir/output" | tr "\\r\\t" "\\n " | tr -d "\\000-\\011\\013-\\037" '
    "| sed -e 's/\\\\/\\\\\\\\/g' -e 's/\"/\\\\\"/g' | awk '{ printf \"%s\\\\n\", $0 }'; "
    "printf '\"}\\n'"
)


class HostJobs:
    """The jobs of one host. Its login is root, or `host` puts sudo before what it runs."""

    def __init__(self, host: Host, node: str, folder: str = JOBS) -> None:
        self._host = host
        self._node = node
        self._folder = folder

    def start(self, name: str, command: tuple[str, ...]) -> None:
        """Start `command` under `name`, unless a job of that name was ever started; returns at once.

        Raises what the host raises (repeat it then: nothing is started twice), ConfigurationError where the host
        cannot keep a job, and TransientError where it was not seen to begin.
        """
        result = self._host.run(("sh", "-c", self._script(START), "gpufleet-job-start", _checked(name), *command))
        if result.code == 74:
            raise TransientError(f"the host did not begin the job {name}", node=self._node)
        if result.code:
            said = (result.stderr or result.stdout).strip()[-300:] or f"exit status {result.code}"
            raise ConfigurationError(f"the host cannot keep jobs in {self._folder}: {said}", node=self._node)

    def read(self, name: str) -> HostJob:
        """What became of the job. Raises what the host raises, and TransientError for an answer of another shape."""
        result = self._host.run(("sh", "-c", self._script(READ), "gpufleet-job-read", _checked(name)))
        job = read_job(result.stdout)
        if job is None:
            said = (result.stderr or result.stdout).strip()[-200:]
            raise TransientError(f"the host does not tell of the job {name}: {said or 'no answer'}", node=self._node)
        return job

    def _script(self, script: str) -> str:
        return script.replace(JOBS, self._folder)


def _checked(name: str) -> str:
    if not is_job_id(name):
        raise ConfigurationError(f"{name!r} is no name of a job")
    return name
