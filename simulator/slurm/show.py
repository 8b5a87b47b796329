"""What `scontrol show` prints: field order and spacing of Slurm 22.05's sprint functions."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.hostlist import compress
from simulator.clock import SimClock
from simulator.slurm.records import CPUS, MEMORY_MB, JobState, SlurmJob, SlurmNode
from simulator.slurm.words import clock_text, long_duration, user_id

VERSION = "22.05.8"
_OS = "Linux 5.15.0-105-generic #115-Ubuntu SMP Mon Apr 15 09:52:04 UTC 2024"


def _record(lines: Iterable[str], oneliner: bool) -> str:
    return " ".join(lines) + "\n" if oneliner else "\n   ".join(lines) + "\n\n"


def memory_text(megabytes: int) -> str:
    return f"{megabytes // 1024}G" if megabytes % 1024 == 0 else f"{megabytes}M"


def show_node(node: SlurmNode, clock: SimClock, oneliner: bool) -> str:
    used, gpus = node.cpus_allocated, node.machine.gpus
    memory = MEMORY_MB if used else 0
    tres = f"cpu={CPUS},mem={memory_text(MEMORY_MB)},billing={CPUS},gres/gpu={gpus}"
    given = f"cpu={used},mem={memory_text(memory)}" if used else ""
    features = ",".join(node.features) or "(null)"
    given_gpus = gpus if node.exclusive else sum(node.running.values())
    lines = [
        f"NodeName={node.name} Arch=x86_64 CoresPerSocket={CPUS // 4} ",
        f"CPUAlloc={used} CPUEfctv={CPUS} CPUTot={CPUS} CPULoad={used * 0.8 + 0.31:.2f}",
        f"AvailableFeatures={features}",
        f"ActiveFeatures={features}",
        f"Gres=gpu:h100:{gpus}",
        f"NodeAddr={node.name} NodeHostName={node.name} Version={VERSION}",
        f"OS={_OS} ",
        f"RealMemory={MEMORY_MB} AllocMem={memory} FreeMem={MEMORY_MB - memory // 2 - 20480} Sockets=2 Boards=1",
        f"State={node.state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={node.partition} ",
        f"BootTime={clock_text(clock, node.boot_at)} SlurmdStartTime={clock_text(clock, node.slurmd_started)}",
        f"LastBusyTime={clock_text(clock, node.last_busy)}",
        f"CfgTRES={tres}",
        f"AllocTRES={given}" + (f",gres/gpu={given_gpus}" if given and given_gpus else ""),
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if node.reason is not None:
        lines.append(f"Reason={node.reason} [{node.reason_by}@{clock_text(clock, node.reason_at)}]")
    return _record(lines, oneliner)


def job_cpus(job: SlurmJob) -> int:
    if job.state is JobState.PENDING:
        return job.request.nodes
    return job.request.nodes * (CPUS if job.request.exclusive else max(2, CPUS * job.request.gpus // 8))


def job_tres(job: SlurmJob) -> str:
    nodes, cpus = job.request.nodes, job_cpus(job)
    gpus = f",gres/gpu={nodes * job.request.gpus}" if job.request.gpus else ""
    return f"cpu={cpus},mem={memory_text(MEMORY_MB * nodes)},node={nodes},billing={cpus}{gpus}"


def run_seconds(job: SlurmJob, clock: SimClock) -> float:
    if job.started is None:
        return 0.0
    return (job.ended if job.ended is not None else clock.now()) - job.started


def end_time(job: SlurmJob) -> float | None:
    """When it ended, or must end by its limit."""
    if job.ended is not None:
        return job.ended
    if job.started is None or job.limit_seconds is None:
        return None
    return job.started + job.limit_seconds


def show_job(job: SlurmJob, clock: SimClock, oneliner: bool) -> str:
    request, pending = job.request, job.state is JobState.PENDING
    owner = f"{request.user}({user_id(request.user)})"
    count = f"{request.nodes}-{request.nodes}" if pending and not job.restarts else str(request.nodes)
    waits = job.eligible if pending and job.restarts else None
    array = "ArrayJobId={} ArrayTaskId={} ".format(*job.task) if job.task else ""
    lines = [
        f"JobId={job.id} {array}JobName={request.name}",
        f"UserId={owner} GroupId={owner} MCS_label=N/A",
        f"Priority={0 if job.held else 4294901760 - job.id} Nice=0 Account={request.account or '(null)'} QOS=(null)",
        f"JobState={job.state} Reason={job.reason.replace(' ', '_')} Dependency=(null)",
        f"Requeue={int(request.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode={job.exit_code}",
        f"RunTime={long_duration(run_seconds(job, clock))} TimeLimit={long_duration(job.limit_seconds)} TimeMin=N/A",
        f"SubmitTime={clock_text(clock, job.submitted)} EligibleTime={clock_text(clock, job.eligible)}",
        f"AccrueTime={clock_text(clock, job.accrued)}",
        f"StartTime={clock_text(clock, job.started or waits)} EndTime={clock_text(clock, end_time(job))} Deadline=N/A",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={clock_text(clock, job.submitted)} Scheduler=Main",
        f"Partition={request.partition} AllocNode:Sid=login-01:2641",
        f"ReqNodeList={compress(request.required) or '(null)'} ExcNodeList=(null)",
        f"NodeList={compress(job.nodes)}",
        *([f"BatchHost={job.nodes[0]}"] if job.nodes else []),
        f"NumNodes={count} NumCPUs={job_cpus(job)} NumTasks={request.nodes} CPUs/Task=1 ReqB:S:C:T=0:0:*:*",
        f"TRES={job_tres(job)}",
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        "MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0",
        f"Features={request.constraint or '(null)'} DelayBoot=00:00:00",
        *([f"Reservation={job.reservation}"] if job.reservation else []),
        f"OverSubscribe={'NO' if request.exclusive else 'OK'} Contiguous=0 Licenses=(null) Network=(null)",
        f"Command={request.command}",
        f"WorkDir={request.workdir}",
        *([f"Comment={job.comment} "] if job.comment else []),
        f"StdErr={request.workdir.rstrip('/')}/slurm-{job.id}.out",
        "StdIn=/dev/null",
        f"StdOut={request.workdir.rstrip('/')}/slurm-{job.id}.out",
        "Power=",
        *([f"TresPerNode=gres:gpu:{request.gpus}", ""] if request.gpus else [""]),
    ]
    return _record(lines, oneliner)


def show_partition(name: str, nodes: list[SlurmNode], default: bool, oneliner: bool) -> str:
    count = len(nodes)
    gpus = sum(node.machine.gpus for node in nodes)
    tres = f"cpu={CPUS * count},mem={memory_text(MEMORY_MB * count)},node={count},billing={CPUS * count}"
    lines = [
        f"PartitionName={name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if default else 'NO'} QoS=N/A",
        "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={compress(node.name for node in nodes)}",
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=OFF",
        f"State=UP TotalCPUs={CPUS * count} TotalNodes={count} SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES={tres},gres/gpu={gpus}",
    ]
    return _record(lines, oneliner)
