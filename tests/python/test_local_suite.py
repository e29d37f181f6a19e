# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of other files with a client of "local:" in place of one of a service."""
import types

import pytest

np = pytest.importorskip("numpy")

import test_aio
import test_apart
import test_conversion_calls
import test_conversions
import test_errors
import test_gather_scatter
import test_layers
import test_memory
import test_multicast
import test_numpy_random
import test_order
import test_protocols
import test_quantize
import test_threads

STATS = "they count requests, or ask the service for what it holds"
STAGED = "they are about staging, its progress, and which arrays are shared; without a service no array is either"
WITHIN = "what is staged may lie in what is written; what is moved where it is may not (OverlapError)"
WORDS = "the engine refuses in other words than the package does before it stages"
LAYERS = "layers are moved one after the other"
CALLS = "a move that waits for no point runs within the call that submits it, on the loop's thread"
STOPS = "they stop or kill a service"

NEED_A_SERVICE = {
    test_aio: {
        "a_stopped_tmad_does_not_hold_up_the_loop": STOPS, "arrays_are_freed_without_waiting": STOPS,
        "canceled_in_the_thread_is_over": CALLS, "canceled_while_stopped": STOPS, "close_that_is_canceled": STOPS,
        "close_with_requests_in_flight": STOPS, "errors": STAGED, "gone_for_good": STOPS,
        "killed_and_started_again": STOPS, "large_beside_small": CALLS, "no_reconnect": STOPS,
    },
    test_apart: {
        "a_batch_is_refused_as_a_whole": WORDS, "refused_by_asyncio": WORDS,
        "the_value_is_checked_before_anything_moves": WORDS, "words": WORDS,
    },
    test_conversion_calls: {
        "overlaps": WITHIN, "plans": STATS, "progress_counts_the_bytes_of_both_sides": STAGED,
        "staging_memory_is_bounded": STAGED,
    },
    test_conversions: {},
    test_errors: {"overlap": WITHIN, "wrong_arguments": STAGED},
    test_gather_scatter: {"what_is_staged_may_overlap": WITHIN},
    test_layers: {
        "is_one_request": LAYERS, "progress": STAGED, "staged_layers_that_are_both_sides": WITHIN,
    },
    test_memory: {
        "memmaps": STAGED, "shared_memory": STAGED, "staging_is_bounded": STAGED,
        "what_lies_there_now_is_no_registered_memory": STAGED,
    },
    test_multicast: {"refused": WORDS, "shared_arrays_in_one_request": STATS},
    test_numpy_random: {},
    test_order: {},
    test_protocols: {"numpy_gives_numpy": STAGED},
    test_quantize: {
        "blocks": STAGED, "plans": STATS, "progress_and_timelines": STAGED, "staged_as_shared": STAGED,
        "where_arrays_lie_in_each_other": WITHIN,
    },
    test_threads: {
        "a_large_move_within_another_one": STAGED, "a_move_within_a_staged_move": STAGED,
        "regions_end_with_their_arrays": STATS,
    },
}


@pytest.fixture(scope="module")
def tmad():
    return types.SimpleNamespace(path="local:")


for module, left_out in NEED_A_SERVICE.items():
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and isinstance(value, types.FunctionType) and name[5:] not in left_out:
            globals()[f"{name}_of_{module.__name__[5:]}"] = value
        elif hasattr(value, "_pytestfixturefunction") or type(value).__name__ == "FixtureFunctionDefinition":
            globals()[name] = value


def test_what_is_left_out_is_there():
    """Every test that is left out by name still exists."""
    for module, left_out in NEED_A_SERVICE.items():
        assert all(hasattr(module, f"test_{name}") for name in left_out), module
