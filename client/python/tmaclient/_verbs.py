# SPDX-License-Identifier: Apache-2.0
"""The verbs: the operations on arrays that clients and batches have in common. Each is defined here once, for blocking
clients, asyncio clients and batches.

A verb passes to `_do` a method of Maker that makes a job, and the arguments of that method: a client runs the job, and
a batch collects it. Clients for asyncio derive their verbs from these (`aio._awaited`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ._jobs import Maker, MoveKeywords, Options
from ._moves import Mode, parse_constant
from ._reshard import Reshard
from ._scales import Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numpy = NDArray[Any]


_Array = TypeVar("_Array")  # the result has the type of the source, such as torch.Tensor
_Axes = Sequence[int] | None


class _TransformKeywords(MoveKeywords, total=False):
    permute: _Axes
    pad: Any
    mode: Mode
    value: Any


class _GatherKeywords(MoveKeywords, total=False):
    axis: int
    permute: _Axes


class Verbs(Maker):
    """The verbs that batches and clients have. In overloads, Sequence stands for buffers and for lists of layers."""

    @overload
    def copy(self, src: Numpy, out: Numpy | None = None, **_: Unpack[MoveKeywords]) -> Numpy: ...
    @overload
    def copy(self, src: Sequence[Any], out: Any = None, **_: Unpack[MoveKeywords]) -> Any: ...
    @overload
    def copy(self, src: _Array, out: _Array | None = None, **_: Unpack[MoveKeywords]) -> _Array: ...
    def copy(self, src: Any, out: Any = None, **options: Unpack[MoveKeywords]) -> Any:
        """Copies as np.copy does: the result has src's shape and type, and is in C order unless out has another order.
        With dtype, it is src.astype(dtype), except that values out of range differ unless cast is "ieee"."""
        return self._transform(options, False, src, None, None, "constant", 0, out)

    @overload
    def transpose(
        self, src: Numpy, axes: _Axes = None, out: Numpy | None = None, **_: Unpack[MoveKeywords]
    ) -> Numpy: ...
    @overload
    def transpose(self, src: Sequence[Any], axes: _Axes = None, out: Any = None, **_: Unpack[MoveKeywords]) -> Any: ...
    @overload
    def transpose(
        self, src: _Array, axes: _Axes = None, out: _Array | None = None, **_: Unpack[MoveKeywords]
    ) -> _Array: ...
    def transpose(
        self, src: Any, axes: Sequence[int] | None = None, out: Any = None, **options: Unpack[MoveKeywords]
    ) -> Any:
        """Returns a copy of np.transpose(src, axes): dimension d of the result, of extent src.shape[axes[d]], is
        dimension axes[d] of src. axes None reverses the dimensions; negative axes count from the end. ValueError or
        IndexError: axes is not a permutation."""
        return self._transform(options, True, src, axes, None, "constant", 0, out)

    @overload
    def pad(
        self,
        src: Numpy,
        pad_width: Any,
        mode: Mode = "constant",
        constant_values: Any = 0,
        out: Numpy | None = None,
        **_: Unpack[MoveKeywords],
    ) -> Numpy: ...
    @overload
    def pad(
        self,
        src: Sequence[Any],
        pad_width: Any,
        mode: Mode = "constant",
        constant_values: Any = 0,
        out: Any = None,
        **_: Unpack[MoveKeywords],
    ) -> Any: ...
    @overload
    def pad(
        self,
        src: _Array,
        pad_width: Any,
        mode: Mode = "constant",
        constant_values: Any = 0,
        out: _Array | None = None,
        **_: Unpack[MoveKeywords],
    ) -> _Array: ...
    def pad(
        self,
        src: Any,
        pad_width: Any,
        mode: Mode = "constant",
        constant_values: Any = 0,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Pads as np.pad does, with mode "constant", "edge", "reflect", "symmetric" or "wrap".

        pad_width is a number of elements, for every side; a pair (before, after), for every axis; a pair for each
        axis; or a dict of axes to numbers or pairs. The result's extents are before + extent + after. A negative
        width crops; ValueError if nothing of an axis is left. constant_values is one number, which the result's type
        has to represent (InvalidArgumentError).
        """
        return self._transform(options, False, src, None, pad_width, mode, parse_constant(constant_values), out)

    @overload
    def transform(self, src: Numpy, *, out: Numpy | None = None, **_: Unpack[_TransformKeywords]) -> Numpy: ...
    @overload
    def transform(self, src: Sequence[Any], *, out: Any = None, **_: Unpack[_TransformKeywords]) -> Any: ...
    @overload
    def transform(self, src: _Array, *, out: _Array | None = None, **_: Unpack[_TransformKeywords]) -> _Array: ...
    def transform(
        self,
        src: Any,
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: Mode = "constant",
        value: Any = 0,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Returns np.pad(np.transpose(src, permute), pad, mode), moved in one pass. permute is like transpose's axes,
        but None permutes nothing. pad is like pad's pad_width, for the axes of the result. value, a number that the
        result's type has, fills the border with mode "constant"."""
        return self._transform(options, False, src, permute, pad, mode, value, out)

    def quantize(
        self,
        src: Any,
        block: Any = (128, 128),
        *,
        permute: Sequence[int] | None = None,
        power_of_two: bool = False,
        least: float = 0.0,
        inverse: bool = False,
        scale_dtype: Any = None,
        out: Any = None,
        scale_out: Any = None,
        inverse_out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> tuple[Any, ...]:
        """Casts permute(src) to a small floating-point type. Each block has a scale, which brings the block's largest
        magnitude to the type's largest value. Returns (data, scale), or (data, scale, 1 / scale) with inverse. Both
        types are floating-point types of 8 to 32 bits.

        scale is the number to multiply by when data is read, max(amax(abs(block)), least) / largest: data * scale,
        with each scale repeated over its block, is permute(src) except for rounding. It is what per_block_cast_to_fp8
        of DeepGEMM returns (with least=1e-4), and weight_scale_inv of DeepSeek's checkpoints and vLLM. The inverse, by
        which elements were multiplied, is 1 / scale.

            block           as in Amax: (128, 128) for weights, also of many experts, [n, rows, columns]; 128 for each
                            128 elements of a row of activations; (1, -1) for whole rows; None for one scale of all
            dtype, cast     type of data: that of out, or else "float8_e4m3fn", which NumPy has with ml_dtypes
            power_of_two    True: scales are rounded up to powers of two
            least           lower bound of the largest magnitude of a block
            scale_dtype     type of scale and inverse: "float32"; or, with power_of_two, "float8_e8m0fnu" or "uint8",
                            which hold only the biased exponents (torch has the former, NumPy with ml_dtypes)
            out             array for data, as in Client
            scale_out,      arrays for scale and inverse, with any strides, of a type that scale_dtype may name. With
            inverse_out     inverse_out, the inverse is returned, too

        scale and inverse have as many dimensions as data, with an extent of ceil(extent / block) in each. Without
        scale_out and inverse_out they are new arrays like src: in C order, on its device, in shared memory if src is.
        They must share no bytes with other arrays. The results are the same bit for bit in any kind of memory: staged
        arrays are cut between blocks, and a block that is larger than a chunk has to fit into shared memory at once,
        whatever `staging` says (QuotaError, NoMemoryError).

        The scale of a block of zeros is 1. That of a block with a NaN is NaN, and so are all its elements. That of a
        block with an infinity is infinity, and its elements are 0, or NaN where they were infinite. No scale is below
        2^-126. ValueError: the type of src or data is no such floating-point type, a block or an array has a wrong
        shape, or scale or bias is given. TypeError: scales are of a wrong type. UnsupportedError: the service's engine
        does not compute scales.
        """
        scaling = Scaling(block, power_of_two, least, inverse, scale_dtype, scale_out, inverse_out)
        results: tuple[Any, ...] = self._do(self._quantize_job, options, src, permute, out, scaling)
        return results


class ClientVerbs(Verbs):
    """The verbs of clients: those of Verbs, and those that batches do not have."""

    def multicast(
        self,
        src: Any,
        outs: Sequence[Any],
        *,
        permute: Sequence[int] | None = None,
        pad: Any = None,
        mode: Mode = "constant",
        value: Any = 0,
        **options: Unpack[MoveKeywords],
    ) -> tuple[Any, ...]:
        """Transforms src into each of outs, and returns them as a tuple. They may be arrays of any kinds, on the host
        or on any devices, with any strides. Each must have the result's shape and type, and they must share no bytes.

        src is read once. Large arrays on several devices are copied from device to device, in a chain along the fastest
        links. Arrays that are not shared with the service are staged one by one. If there are arrays on several
        devices, the call waits for the current stream of each, and then for the end of the move. A call that fails
        leaves all of outs undefined. amax, which makes the scales of one result, is not accepted (TypeError).
        """
        results: tuple[Any, ...] = self._do(self._multicast_job, options, src, outs, permute, pad, mode, value)
        return results

    @overload
    def gather(self, src: Numpy, index: Any, *, out: Numpy | None = None, **_: Unpack[_GatherKeywords]) -> Numpy: ...
    @overload
    def gather(self, src: Sequence[Any], index: Any, *, out: Any = None, **_: Unpack[_GatherKeywords]) -> Any: ...
    @overload
    def gather(self, src: _Array, index: Any, *, out: _Array | None = None, **_: Unpack[_GatherKeywords]) -> _Array: ...
    def gather(
        self,
        src: Any,
        index: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        out: Any = None,
        **options: Unpack[MoveKeywords],
    ) -> Any:
        """Returns np.take(src, index, axis), transposed by permute: the result has len(index) entries along the axis.

        index is a list or an array of one dimension. On the host, its entries are integers: negative ones count from
        the end, and OutOfRangeError is raised for those out of range. On the device, it must be contiguous int32 or
        int64: entries that are -1 or out of range are skipped, and leave the result unchanged. scale and bias are the
        same for all entries: they have an extent of 1 along the axis of the result, or lack that axis.

        src may be a list of layers: arrays of one shape, type and strides, such as K and V of each layer of a cache.
        The result then has one more dimension in front, which counts the layers. axis, permute, scale and bias refer to
        a single layer:

            np.stack([np.transpose(np.take(s, index, axis), permute) for s in src])

        out has the dimension of layers, too, or is a list. The service moves up to 1024 layers in one request, wherever
        each one is. Layers that the service does not reach are staged one by one.
        """
        return self._do(self._gather_job, options, src, index, axis, permute, out)

    def scatter(
        self,
        dst: Any,
        index: Any,
        src: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """Does the inverse of gather: along the axis of dst, entry index[i] becomes entry i of src, which is first
        transposed by permute. The permuted src has dst's shape, except for len(index) entries along the axis. No index
        may appear twice. Other entries of dst stay unchanged. scale and bias are those of gather; dst may be any array
        that could be out. If dst is a list of layers, as for gather, src must be a list of as many arrays, or an array
        whose first dimension counts the layers."""
        done: None = self._do(self._scatter_job, options, dst, index, src, axis, permute)
        return done

    def gather_scatter(
        self,
        dst: Any,
        src: Any,
        pairs: Any,
        *,
        axis: int = 0,
        permute: Sequence[int] | None = None,
        **options: Unpack[MoveKeywords],
    ) -> None:
        """Gathers and scatters in one call: along the axis, block pairs[i][1] of dst becomes block pairs[i][0] of src,
        which is first transposed by permute. The permuted src has dst's shape, with any extent along the axis. With
        axis 0, the call does:

            dst[pairs[:, 1]] = np.transpose(src, permute)[pairs[:, 0]]

        pairs is a list of pairs, or an array of shape [n, 2] (the form of vLLM's block_mapping). On the host, its
        numbers are integers: negative ones count from the end, and OutOfRangeError is raised for those out of range. On
        the device, it must be contiguous int32 or int64: a pair is skipped if either number is -1 or out of range. No
        block of dst may appear twice (OverlapError, for pairs on the host). Other blocks of dst stay as they are.

        dst and src may be the same array, to move blocks within one cache. The pairs must then be on the host, and no
        block may be both read and written (OverlapError). A list of more than 48 KiB then takes several requests.
        scale, bias and layers are those of scatter.
        """
        done: None = self._do(self._pairs_job, options, dst, pairs, src, axis, permute)
        return done

    def reshard(
        self, destinations: Any, sources: Any, *, shape: Sequence[int] | None = None, **options: Unpack[MoveKeywords]
    ) -> None:
        """Assembles the destinations from the sources, in one request. All of them are parts of one tensor, which no
        array has to hold as a whole. This, for example, changes the tensor-parallel size of a model from 4 to 8:

            c.reshard(tma.shards(eight, axis=1), tma.shards(four, axis=1))

        Both list slices: pairs of an array and the index of its first element in the tensor, as `shards` and `Slice`
        make them. All arrays must be of one type and rank. If several sources have the same elements, these are assumed
        to be equal, and those of the nearest source are read. Each element of a destination has to be in some source
        (OutOfRangeError names the first that is not). Destinations must not share memory with each other or with
        sources (OverlapError). shape is that of the tensor; if it is given, all slices have to be within it.

        Arrays that the service does not reach are copied as a whole, not in chunks. If there are arrays on several CUDA
        devices, the call waits for the work that is queued in the current stream of each, and for the end of the move.
        The keywords that convert, and progress, are not accepted.
        """
        done: None = self._reshard(Options.of(options).check_reshard(), Reshard.parse(destinations, sources, shape))
        return done
