"""The few requests that we make of a Kubernetes API server, by lightkube; its errors are translated here, once.

Nodes and pods are kept as plain JSON: lightkube's typed models refuse a whole list for one odd field. Source of the
protocol: Kubernetes' API concepts (pages, merge patch, resource versions) and its page on API-initiated eviction.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec
import yaml
from lightkube import ALL_NS, Client, ConfigError, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.operators import BinaryOperator, SequenceOperator, not_equal, not_in
from lightkube.resources.core_v1 import PodEviction
from lightkube.types import PatchType

from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, SchedulerUnreachable
from fleet.json_values import JsonObject, objects_at, text_at
from fleet.kubernetes_pods import Pod

_Node = create_global_resource("", "v1", "Node", "nodes")
_Pod = create_namespaced_resource("", "v1", "Pod", "pods")
_PAGE = 500  # objects; what kubectl asks for
_SENSELESS = (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError)
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_SHOWN = 300


class KubernetesApi:
    """One API server. Every method raises SchedulerUnreachable, CredentialsRejected or ConfigurationError."""

    def __init__(self, config: SingleConfig | KubeConfig, timeout_seconds: float = 30.0) -> None:
        """Raises ConfigurationError where the credentials or certificates that it names cannot be read."""
        with _reading_config():
            self._client = Client(config=config, timeout=httpx2.Timeout(timeout_seconds))

    @classmethod
    def from_kubeconfig(
        cls, path: Path | None, context: str | None = None, timeout_seconds: float = 30.0
    ) -> KubernetesApi:
        """By a kubeconfig and one of its contexts; without a path by the pod's service account, `KUBECONFIG` or
        `~/.kube/config`, whichever is there first. Raises ConfigurationError."""
        with _reading_config():
            found = KubeConfig.from_env() if path is None else KubeConfig.from_file(path)
            single = found.get(context)
        if single is None or single.user is None:
            raise ConfigurationError("the kubeconfig's context names no user; add one")
        return cls(single, timeout_seconds)

    @classmethod
    def at(cls, url: str, timeout_seconds: float = 30.0) -> KubernetesApi:
        """An API server that asks for no credentials, such as `kubectl proxy`."""
        return cls(KubeConfig.from_one(cluster=Cluster(server=url), user=User()), timeout_seconds)

    def nodes(self) -> tuple[JsonObject, ...]:
        """Every node."""
        with _speaking("list the nodes"):
            return tuple(self._client.list(_Node, chunk_size=_PAGE))

    def node(self, name: str) -> JsonObject | None:
        """One node; None where there is no such node."""
        with _speaking(f"read node {name}"):
            try:
                return self._client.get(_Node, name)
            except httpx2.HTTPStatusError as error:
                _pass_over(error, 404)
                return None

    def pods(self, namespace: str | None = None, bound: bool = True) -> tuple[JsonObject, ...]:
        """Every unfinished pod of all namespaces or of one; with `bound` only those that have a node."""
        fields: dict[str, str | BinaryOperator | SequenceOperator] = {"status.phase": not_in(["Succeeded", "Failed"])}
        if bound:
            fields["spec.nodeName"] = not_equal("")
        with _speaking("list the pods"):
            return tuple(self._client.list(_Pod, namespace=namespace or ALL_NS, chunk_size=_PAGE, fields=fields))

    def patch_node(self, name: str, patch: JsonObject) -> bool:
        """Merge `patch` into the node; False where it has changed since it was read, or has gone."""
        with _speaking(f"change node {name}"):
            try:
                self._client.patch(_Node, name, dict(patch), patch_type=PatchType.MERGE)
            except httpx2.HTTPStatusError as error:
                _pass_over(error, 404, 409)
                return False
        return True

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> bool:
        """Set annotations on that very pod; False where it has gone."""
        patch = {"metadata": {"annotations": dict(annotations), "uid": pod.uid}}
        with _speaking(f"annotate pod {pod.namespace}/{pod.name}"):
            try:
                self._client.patch(_Pod, pod.name, patch, namespace=pod.namespace, patch_type=PatchType.MERGE)
            except httpx2.HTTPStatusError as error:
                _pass_over(error, 404, 409)
                return False
        return True

    def evict(self, pod: Pod, dry: bool) -> str | None:
        """Evict that very pod, or with `dry` ask whether it may be; what forbids it, None where nothing does.

        A pod that has gone meanwhile is no error.
        """
        eviction = PodEviction(
            metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
            deleteOptions=DeleteOptions(preconditions=Preconditions(uid=pod.uid)),
        )
        with _speaking(f"evict pod {pod.namespace}/{pod.name}"):
            try:
                self._client.create(eviction, pod.name, namespace=pod.namespace, dry_run=dry)
            except httpx2.HTTPStatusError as error:
                said = _forbidden_by(error.response)
                if said is None:
                    _pass_over(error, 404, 409)
                return said
        return None


def _pass_over(error: httpx2.HTTPStatusError, *codes: int) -> None:
    if error.response.status_code not in codes:
        raise error


def _forbidden_by(response: httpx2.Response) -> str | None:
    """The disruption budget's own words, where one forbids the eviction."""
    body = _body(response)
    said = text_at(body, "message") or ""
    if response.status_code == 500 and _SEVERAL_BUDGETS in said:
        return said[:_SHOWN]
    causes = objects_at(body, "details", "causes")
    budgets = [cause for cause in causes if cause.get("reason") == "DisruptionBudget"]
    if response.status_code != 429 or not budgets:
        return None
    return (text_at(budgets[0], "message") or said or "a disruption budget allows none")[:_SHOWN]


@contextmanager
def _reading_config() -> Iterator[None]:
    try:
        yield
    except (ConfigError, OSError, AssertionError, yaml.YAMLError, *_SENSELESS) as error:
        raise ConfigurationError(f"the kubeconfig cannot be used: {type(error).__name__}: {error}"[:_SHOWN]) from error


@contextmanager
def _speaking(doing: str) -> Iterator[None]:
    """Translates what goes wrong in one request."""
    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise _refused(doing, error.response) from error
    except httpx2.HTTPError as error:
        raise _silent(doing, error) from error
    except ConfigError as error:
        raise ConfigurationError(f"cannot {doing}: {error}"[:_SHOWN]) from error
    except OSError as error:
        raise ConfigurationError(f"cannot {doing}: the kubeconfig's login command fails: {error}"[:_SHOWN]) from error
    except _SENSELESS as error:
        # an error page without a content type fails in the client before it is told as an error
        status = next((seen for seen in _chain(error) if isinstance(seen, httpx2.HTTPStatusError)), None)
        if status is not None:
            raise _refused(doing, status.response) from error
        if isinstance(error, KeyError | json.JSONDecodeError | UnicodeDecodeError):  # lists are decoded by msgspec
            raise ConfigurationError(f"cannot {doing}: the kubeconfig's login command gives no token") from error
        message = f"cannot {doing}: the API server's answer makes no sense ({type(error).__name__}: {error})"
        raise SchedulerUnreachable(message[:_SHOWN]) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _silent(doing: str, error: httpx2.HTTPError) -> FleetError:
    fault = next((seen for seen in _chain(error) if isinstance(seen, ssl.SSLCertVerificationError)), None)
    if fault is not None or isinstance(error, httpx2.UnsupportedProtocol):
        why = fault.verify_message if fault is not None else str(error)
        return ConfigurationError(f"cannot {doing}: the API server's address or certificate is not right: {why}")
    return SchedulerUnreachable(f"cannot {doing}: the API server does not answer ({type(error).__name__}: {error})")


def _refused(doing: str, response: httpx2.Response) -> FleetError:
    code = response.status_code
    said = (text_at(_body(response), "message") or response.reason_phrase)[:_SHOWN]
    message, evidence = f"cannot {doing}: HTTP {code}, {said}", (said,)
    if code in (401, 403):
        return CredentialsRejected(
            f"{message}; the rights that are needed are in docs/kubernetes.md", evidence=evidence
        )
    if code in (408, 410, 429) or code >= 500:
        return SchedulerUnreachable(message, evidence=evidence)
    return ConfigurationError(message, evidence=evidence)


def _body(response: httpx2.Response) -> object:
    try:
        return json.loads(response.content)
    except ValueError:
        return None
