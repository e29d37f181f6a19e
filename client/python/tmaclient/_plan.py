# SPDX-License-Identifier: Apache-2.0
"""Plans: descriptions of how the service would move a transform, and transforms that were prepared for many runs."""

from __future__ import annotations

from typing import Any, Self, Unpack

from . import _core
from ._arrays import Array, adapt
from ._conversion import Conversion, parse_conversion
from ._jobs import Job, Maker, MoveKeywords, Options
from ._moves import Move, permuted_shape


class Plan:
    """A description of how the service would move a transform, as a mapping of the names of its properties to their
    values. A notebook shows it as a picture."""

    def __init__(self, core: _core.Client, move: Move, engine: str | None) -> None:
        self._core, self._request, self._engine = core, move.request(), engine
        self._document: dict[str, Any] = core.explain(self._request, engine)

    def __getitem__(self, key: str) -> Any:
        return self._document[key]

    def __contains__(self, key: object) -> bool:
        return key in self._document

    def keys(self) -> Any:
        """Returns the names of the properties."""
        return self._document.keys()

    def as_dict(self) -> dict[str, Any]:
        """Returns all properties as a dict."""
        return dict(self._document)

    def __repr__(self) -> str:
        document = self._document
        width = max((len(key) for key in document), default=0)
        lines = [f"Plan of engine {document.get('engine')}: {document.get('family')}"]
        for key, value in document.items():
            if key in ("engine", "family") or value in (None, [], {}):
                continue
            lines.append(f"  {key:<{width}}  {_text(value)}")
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        return self._core.picture(self._request, self._engine)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    return str(value)


class PreparedPlan(_core.Plan):
    """A transform that was checked once: plan(src, out) runs it and returns out, or without out a new array like src.
    scale= and bias= replace the arrays that the plan was made with; amax= replaces its arrays for scales by those of
    another Amax."""

    _client: Any  # a Maker; it has to be a Client if the plan is called directly
    _move: Move

    @classmethod
    def _make(cls, client: Maker, core: _core.Client, move: Move) -> Self:
        plan = cls(core, move.request())
        plan._client, plan._move = client, move
        return plan

    def _arrays(self, src: Any, out: Any) -> tuple[Any, Array, Array]:
        array = adapt(src, "src")
        if out is None:
            out, result = self._client._make_result(self.dst.shape, array, self.dst.dtype)
            return out, result, array
        result = adapt(out, "out")
        if result.tensor.readonly:
            raise ValueError("out: the array is read-only")
        return out, result, array

    def _job(self, src: Any, out: Any, options: Options) -> Job:
        out, result, array = self._arrays(src, out)
        conversion, operands = self._conversion(options)
        sides = (result.tensor, array.tensor)
        request = _core.Request.run_plan(self, *sides, *_tensors(conversion))  # this also checks the layouts
        prepared = _Prepared(*sides, self._move, conversion, request, self._client._core)
        return Job(prepared, out, result.kind, (result, array, *operands), options)

    def _conversion(self, options: Options) -> tuple[Conversion | None, tuple[Array, ...]]:
        """Returns the conversion of a run, and the arrays that it reads and writes: those given for the run, and
        otherwise those of the plan."""
        casting, own = options.casting, self._move.conversion
        if casting.dtype is not None or casting.cast is not None:
            raise TypeError("dtype, cast: the plan has its own; a run takes only the arrays scale and bias, and amax's")
        if own is not None:
            casting = casting._replace(
                cast=own.cast,
                scale=own.scale if casting.scale is None else casting.scale,
                bias=own.bias if casting.bias is None else casting.bias,
                amax=own.amax if casting.amax is None else casting.amax,
            )
        shape = permuted_shape(self.src, self._move.permute)
        conversion, arrays = parse_conversion(casting, self.dst, self.src, shape)
        if options.casting.amax is not None:
            _check_amax(conversion, own)
        for name in ("scale", "bias"):
            given = getattr(options.casting, name)
            if given is not None and not isinstance(getattr(conversion, name), _core.Tensor):
                raise ValueError(f"{name}: a number, which the plan keeps; a run takes only arrays")
        return conversion, arrays

    def _run(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        """Runs the plan through a job. The extension calls this for arrays that are not in shared host memory, and for
        runs with options."""
        return self._client._do(self._job, options, src, out)

    def explain(self) -> Plan:
        """Returns how the service would move the transform."""
        return Plan(self._client._core, self._move, None)

    def __repr__(self) -> str:
        return f"<tmaclient.PreparedPlan: {self._words()}>"

    def _words(self) -> str:
        """Returns a description of the move, which says whether the plan was released."""
        return f"{self._move}{', released' if self.released else ''}"


class AsyncPlan:
    """A transform that was checked once: `await plan(src, out)` runs it and returns out."""

    def __init__(self, client: Maker, plan: PreparedPlan) -> None:
        self._client, self._plan = client, plan
        self._job = plan._job

    async def __call__(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        return await self._client._do(self._job, options, src, out)

    def release(self) -> None:
        """Releases the plan. Runs that are under way are completed."""
        self._plan.release()

    def __repr__(self) -> str:
        return f"<tmaclient.aio.AsyncPlan: {self._plan._words()}>"


def _check_amax(conversion: Conversion | None, own: Conversion | None) -> None:
    """Raises ValueError if the plan has no amax, or the amax of a run differs from it in more than its arrays."""
    plans, runs = own.amax if own is not None else None, conversion.amax if conversion is not None else None
    if plans is None:
        raise ValueError("amax: the plan was made without it")
    if runs is None or runs._replace(scale=None, inverse=None) != plans._replace(scale=None, inverse=None):
        raise ValueError("amax: block, power_of_two and least are the plan's; a run takes only other arrays")


def _tensors(conversion: Conversion | None) -> tuple[Any, ...]:
    """Returns the tensors that a run passes to the plan: None for a scale or a bias that is a number, which the plan
    keeps."""
    if conversion is None:
        return ()
    scale, bias = (o if isinstance(o, _core.Tensor) else None for o in (conversion.scale, conversion.bias))
    return (scale, bias) if conversion.amax is None else (scale, bias, conversion.amax.scale, conversion.amax.inverse)


class _Prepared(Move):
    """A move that is made by running a plan. If the service can access the arrays, its request runs the plan;
    otherwise the move is staged in chunks like any other."""

    __slots__ = ("_of", "_prepared", "_sides")

    def __init__(
        self,
        dst: _core.Tensor,
        src: _core.Tensor,
        move: Move,
        conversion: Conversion | None,
        request: _core.Request,
        of: _core.Client,
    ) -> None:
        super().__init__(dst, src, move.permute, move.before, move.after, move.mode, move.value, conversion)
        self._prepared, self._of, self._sides = request, of, (dst, src, conversion)

    def request(self, core: _core.Client | None = None) -> _core.Request:
        """Returns a request that runs the plan, or one of the move itself, if a tensor was replaced by one in staging
        memory, which may have other strides, or if this process launches the move although a service has the plan."""
        dst, src, conversion = self._sides
        is_same = self.dst is dst and self.src is src and self.conversion is conversion
        is_launched = core is not None and core.is_local and not self._of.is_local
        return self._prepared if is_same and not is_launched else super().request(core)
