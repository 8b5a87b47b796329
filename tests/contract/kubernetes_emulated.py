"""An emulated API server: kmock, with what it leaves to its users added: versions, conflicts, pages and evictions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType

import aiohttp.web
import kmock

from tests.unit.kubernetes_objects import Json

Broken = Callable[[kmock.Request], aiohttp.web.Response | None]
NODES, PODS = "v1/nodes", "v1/pods"


class ApiServer(kmock.KubernetesEmulator):
    """`budgets`: name → how many pods of its namespace may still be evicted. `before_patch` runs before a change of a
    node. `broken` may answer instead. `asked` holds method and path of every request."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = 100
        self.reset()
        self.resources[NODES] = kmock.ResourceInfo(namespaced=False)
        self.resources[PODS] = kmock.ResourceInfo(namespaced=True)
        self["list"] << self._page
        self["post", kmock.resource(PODS), kmock.subresource("eviction")] << self._evict

    def reset(self) -> None:
        """As when it started."""
        self.budgets: dict[str, int] = {}
        self.before_patch: Callable[[str], None] = lambda name: None
        self.broken: Broken = lambda request: None
        self.asked: list[str] = []
        for key in list(self.objects):
            del self.objects[key]

    def store(self, kind: str, tree: Json) -> None:
        """Create an object, or put another one in its place."""
        metadata = tree["metadata"]
        assert isinstance(metadata, dict)
        self.versions += 1
        metadata["resourceVersion"] = str(self.versions)
        self.objects[kind, metadata.get("namespace"), metadata["name"]] = tree

    def trees(self, kind: str, namespace: str | None = None) -> list[Json]:
        return [
            item.raw
            for (resource, place, _), item in sorted(self.objects.items(), key=lambda pair: str(pair[0]))
            if resource == kmock.resource(kind) and not item.deleted and namespace in (None, place)
        ]

    async def _handle(self, request: kmock.Request) -> aiohttp.web.StreamResponse:
        del self._requests[:-1]  # each request is matched against the whole history
        self.asked.append(f"{request.method.value.upper()} {request.url.path_qs}")
        answer = self.broken(request)
        if answer is not None:
            return answer
        if request.action == kmock.action.UPDATE and request.name is not None:
            self._check_version(request)
        return await super()._handle(request)

    def _check_version(self, request: kmock.Request) -> None:
        assert request.resource is not None
        assert request.name is not None
        if request.headers.get("Content-Type") != "application/merge-patch+json":
            raise kmock.KubernetesError(status=415, reason="UnsupportedMediaType", message="not a merge patch")
        self.before_patch(request.name)
        key = (request.resource, request.namespace, request.name)
        if key not in self.objects:
            return
        known = self.objects[key]["metadata"]
        for part in ("resourceVersion", "uid"):
            if request.data["metadata"].get(part, known.get(part)) != known.get(part):
                raise kmock.KubernetesError(status=409, reason="Conflict", message="the object has been modified")
        self.versions += 1
        request.data["metadata"]["resourceVersion"] = str(self.versions)

    def _page(self, request: kmock.Request) -> Mapping[str, object]:
        kind = NODES if request.resource == kmock.resource(NODES) else PODS
        trees = self.trees(kind, request.namespace)
        start, size = int(request.params.get("continue", "0")), int(request.params.get("limit", "1000000"))
        more = {"continue": str(start + size)} if start + size < len(trees) else {}
        return {"metadata": {"resourceVersion": str(self.versions), **more}, "items": trees[start : start + size]}

    def _evict(self, request: kmock.Request) -> Mapping[str, object]:
        key = (PODS, request.namespace, request.name or "")
        pod = next((tree for tree in self.trees(PODS, request.namespace) if _name(tree) == request.name), None)
        if pod is None:
            raise kmock.KubernetesError(status=404, reason="NotFound", message=f'pods "{request.name}" not found')
        metadata, options = pod["metadata"], request.data["deleteOptions"]
        assert isinstance(metadata, dict)
        if options["preconditions"]["uid"] != metadata["uid"]:
            raise kmock.KubernetesError(status=409, reason="Conflict", message="the UID in the precondition differs")
        dry = request.params.get("dryRun") == "All"
        for budget, left in self.budgets.items():
            if left <= 0:
                raise _refused(budget)
            self.budgets[budget] = left if dry else left - 1
        if not dry:
            self.objects[key].delete()
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _name(tree: Json) -> object:
    metadata = tree["metadata"]
    return metadata["name"] if isinstance(metadata, dict) else None


def _refused(budget: str) -> kmock.KubernetesError:
    text = f"The disruption budget {budget} needs 2 healthy pods and has 2 currently"
    return kmock.KubernetesError(
        status=429,
        reason="TooManyRequests",
        message="Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": text}]},
    )


class EmulatedCluster:
    """The server on a port of its own, in a thread, for the length of a `with` block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stop: asyncio.Event | None = None
        self._ended: Future[None] | None = None
        self._ready = threading.Event()
        self.server: ApiServer
        self.url = ""

    def __enter__(self) -> EmulatedCluster:
        self._thread.start()
        self._ended = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        assert self._ready.wait(20), "the emulated API server did not start"
        return self

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with ApiServer() as self.server, kmock.Server(self.server) as listening:
            self.url = str(listening.url)
            self._ready.set()
            await self._stop.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._stop is not None
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._ended.result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()
